import copy
import os
import pickle

import pytest
import torch
from torch_geometric.nn import GraphConv

from fmean import GenAgg, load, save, standard
from fmean.checkpoint import save_atomically
from fmean.functions import InvertibleNN, Mixture, MLPAutoencoder, Power, SinhLog

X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))

AGGREGATIONS = {
    "sinh": lambda: GenAgg(),
    "sinh_per_feature": lambda: GenAgg(channels=3),
    "mlp": lambda: GenAgg(MLPAutoencoder((1, 3, 2), batch_norm=True), alpha=0.5),
    "mlp_alpha_per_channel": lambda: GenAgg("mlp", alpha=[0.1, 0.2, 0.3, 0.4], learn_beta=False),
    "invertible": lambda: GenAgg(InvertibleNN(layers=2, magnitude=True), learn_alpha=False),
    "one_channel": lambda: GenAgg(SinhLog(start=-1.0)),
    "standard": lambda: standard("standard_deviation"),
    "double": lambda: GenAgg().double(),
}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_comes_back_as_it_was(name, tmp_path):
    agg = AGGREGATIONS[name]()
    agg(X)
    save(agg.eval(), tmp_path / "deep" / "agg.pt")
    back = load(tmp_path / "deep" / "agg.pt")
    torch.testing.assert_close(back(X), agg(X))
    assert {n for n, _ in back.named_parameters()} == {n for n, _ in agg.named_parameters()}


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_stays_as_it_was_in_a_layer(name, tmp_path):
    agg = AGGREGATIONS[name]()
    with torch.no_grad():
        for p in agg.parameters():
            p += 0.1
    save(agg, tmp_path / "agg.pt")
    conv = GraphConv(3, 3, aggr=load(tmp_path / "agg.pt"))  # which resets all that it is given
    was = agg.state_dict()
    for copied in (conv, copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        with torch.no_grad():
            for p in copied.parameters():
                p += 1
        copied.reset_parameters()
        for key, value in copied.aggr_module.state_dict().items():
            assert torch.equal(value, was[key]), key


def test_what_cannot_be_saved(tmp_path):
    with pytest.raises(TypeError, match=r"only an f of fmean.functions .* not Mixture; use torch.save"):
        save(GenAgg(Mixture([Power(2)])), tmp_path / "agg.pt")


class Evil:
    def __reduce__(self):
        return os.system, ("touch /should-never-run",)


@pytest.mark.parametrize("kind", ["text", "empty", "pickle", "other", "truncated"])
def test_a_file_that_is_none(kind, tmp_path):
    path = tmp_path / "agg.pt"
    if kind == "truncated":
        save(GenAgg(), path)
        path.write_bytes(path.read_bytes()[:500])
    elif kind in ("pickle", "other"):
        torch.save(Evil() if kind == "pickle" else {"weight": torch.ones(2)}, path)
    else:
        path.write_text("hello" * (kind == "text"))
    message = "holds Python objects" if kind == "pickle" else "is not a file that fmean.save wrote"
    with pytest.raises(ValueError, match=rf"agg.pt {message}"):
        load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.pt")


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "agg.pt"
    save_atomically({"a": 1}, path)
    with pytest.raises((AttributeError, TypeError, RuntimeError)):
        save_atomically({"a": lambda: 1}, path)
    assert torch.load(path, weights_only=True) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["agg.pt"]
