import json
import os
import warnings

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv

from fmean import GenAgg, History, load, save, standard
from fmean.explain.reading import aggregations
from fmean.functions import InvertibleNN, MLPAutoencoder, SinhLog

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))

TOLD = {
    "sinh": lambda: GenAgg(),
    "sinh_per_feature": lambda: GenAgg(channels=3, alpha=0.3, beta=0.5),
    "sinh_fixed_alpha": lambda: GenAgg(alpha=[0.1, 0.2, 0.3], learn_alpha=False),
    "mlp": lambda: GenAgg("mlp", alpha=0.5),
    "mlp_alpha_per_channel": lambda: GenAgg("mlp", alpha=[0.1, 0.2, 0.3, 0.4]),
    "mlp_normalised": lambda: GenAgg(MLPAutoencoder((1, 3, 5, 2), batch_norm=True), beta=1.0),
    "mlp_per_feature": lambda: GenAgg(MLPAutoencoder((1, 3, 2), batch_norm=True, channels=3), channels=3),
    "mlp_scalar": lambda: GenAgg(MLPAutoencoder((1, 4, 1))),
    "double": lambda: GenAgg().double(),
}


def stored(content, tmp_path):
    path = tmp_path / "model.pt"
    torch.save(content, path)
    return path


@pytest.mark.parametrize("name", TOLD)
def test_an_aggregation_is_told_from_its_keys(name, tmp_path):
    agg = TOLD[name]()
    x = X.to(agg.alpha.dtype)
    for _ in range(3):
        agg(x, torch.arange(20) // 5)
    model = nn.ModuleDict({"pool": agg, "head": nn.Linear(3, 2), "norm": nn.BatchNorm1d(3)}).eval()
    found = aggregations(stored(model.state_dict(), tmp_path))
    assert list(found.layers) == ["pool"]
    back = found.layers["pool"]
    torch.testing.assert_close(back(x), agg(x))
    assert back.channels == agg.channels
    assert type(back.f) is type(agg.f)
    assert not back.training
    assert found.skipped == {}
    assert found.history is None


def test_the_range_it_has_seen_comes_along(tmp_path):
    agg = GenAgg()
    agg(100 + X)
    back = aggregations(stored(agg.state_dict(), tmp_path)).layers["model"]
    assert back.seen.looks == 1
    torch.testing.assert_close(back.seen.values, agg.seen.values)


def test_a_state_without_what_was_seen(tmp_path):
    state = {key: v for key, v in GenAgg().state_dict().items() if not key.startswith("seen.")}
    assert aggregations(stored(state, tmp_path)).layers["model"].seen.looks == 0


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict", "network"])
def test_a_checkpoint_of_a_training_run(key, tmp_path):
    model = nn.Sequential(GraphConv(3, 3, aggr=GenAgg()), GraphConv(3, 3, aggr=GenAgg("mlp")))
    history = {"steps": [0, 1], "layers": {"0": {"alpha": [[0.0], [0.1]]}}}
    content = {key: model.state_dict(), "epoch": 3, "optimizer_states": [{"state": {}}], "history": history}
    found = aggregations(stored(content, tmp_path))
    assert list(found.layers) == ["0.aggr_module", "1.aggr_module"]
    assert found.history == json.loads(json.dumps(history))


def test_the_history_of_a_lightning_callback(tmp_path):
    agg = GenAgg()
    recorded = History(agg, every=1)
    recorded.step()
    content = {"state_dict": agg.state_dict(), "callbacks": {"Other": {"best": 1}, "Recorder": recorded.to_dict()}}
    assert aggregations(stored(content, tmp_path)).history == recorded.to_dict()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod."])
def test_wrapped_models_lose_their_wrapping(prefix, tmp_path):
    state = {f"{prefix}pool.{key}": v for key, v in GenAgg().state_dict().items()}
    assert list(aggregations(stored(state, tmp_path)).layers) == ["pool"]


def test_a_file_of_save(tmp_path):
    agg = GenAgg(InvertibleNN(magnitude=True))
    save(agg, tmp_path / "pooling.pt")
    found = aggregations(tmp_path / "pooling.pt")
    torch.testing.assert_close(found.layers["pooling"](X), load(tmp_path / "pooling.pt")(X))


@pytest.mark.parametrize("f", [InvertibleNN(), SinhLog()], ids=["invertible", "sinh_log"])
def test_an_f_that_cannot_be_told_is_named(f, tmp_path):
    model = nn.ModuleDict({"known": GenAgg(), "unknown": GenAgg(f)})
    with pytest.warns(UserWarning, match=r"unknown is left out: its f cannot be told .* fmean.report\(model, path\)"):
        found = aggregations(stored(model.state_dict(), tmp_path))
    assert list(found.layers) == ["known"]
    assert list(found.skipped) == ["unknown"]


def test_only_what_cannot_be_told(tmp_path):
    path = stored(GenAgg("invertible").state_dict(), tmp_path)
    with pytest.raises(ValueError, match=r"nothing to report: model: its f cannot be told .* fmean.save"):
        aggregations(path)


@pytest.mark.parametrize("content", [{"weight": torch.ones(2)}, nn.BatchNorm1d(3).state_dict(), {}, {1: 2}])
def test_no_aggregation_in_it(content, tmp_path):
    with pytest.raises(ValueError, match=r"model.pt has nothing to report: there is no GenAgg in it"):
        aggregations(stored(content, tmp_path))


def test_other_modules_with_alpha_and_beta_are_no_aggregations(tmp_path):
    state = {"act.alpha": torch.ones(3), "act.beta": torch.ones(3), **nn.ModuleDict({"a": GenAgg()}).state_dict()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(aggregations(stored(state, tmp_path)).layers) == ["a"]


def test_a_tensor_of_a_claimed_size_is_not_copied(tmp_path):
    state = GenAgg().state_dict() | {"f.omega": torch.zeros(1).expand(10**12, 3)}
    with pytest.raises(ValueError, match=r"nothing to report: .* too large for an aggregation"):
        aggregations(stored(state, tmp_path))


def test_shapes_that_do_not_fit(tmp_path):
    state = GenAgg().state_dict() | {"f.parts.0.rho": torch.zeros(5)}
    with pytest.raises(ValueError, match=r"(?s)nothing to report: .*size mismatch"):
        aggregations(stored(state, tmp_path))


class Evil:
    def __reduce__(self):
        return os.system, ("touch /should-never-run",)


def test_code_in_the_file_is_not_run(tmp_path):
    with pytest.raises(ValueError, match=r"holds Python objects, not only tensors, and is not opened"):
        aggregations(stored({"state_dict": GenAgg().state_dict(), "more": Evil()}, tmp_path))
    assert not os.path.exists("/should-never-run")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 not a zip", b"\x80\x04.", 100, 700, 2000, -1, -30])
def test_a_file_that_is_no_checkpoint(content, tmp_path):
    path = tmp_path / "model.pt"
    if isinstance(content, int):  # cut off there
        torch.save(GenAgg().state_dict(), path)
        content = path.read_bytes()[:content]
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model.pt is not a checkpoint that torch.save wrote"):
        aggregations(path)


def test_a_tensor_alone(tmp_path):
    with pytest.raises(ValueError, match="holds a Tensor, not a model's state_dict"):
        aggregations(stored(torch.ones(3), tmp_path))


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        aggregations(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="is a folder"):
        aggregations(tmp_path)


def test_a_standard_aggregation_saved(tmp_path):
    save(standard("max"), tmp_path / "max.pt")
    assert aggregations(tmp_path / "max.pt").layers["max"](X).shape == (1, 3)
