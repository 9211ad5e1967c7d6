"""One run: training, going on where it was, and the row it gives."""

import time
from dataclasses import replace

import pytest
import torch

from fmean.experiments.benchmark import Network, accuracy, captured
from fmean.experiments.benchmark.aggregators import AGGREGATORS
from fmean.experiments.benchmark.runs import Job, Run, Settings
from fmean.experiments.benchmark.training import Trainer

COLUMNS = {
    "dataset", "protocol", "aggregator", "seed", "share", "epochs", "train_accuracy", "test_accuracy", "curve",
    "parameters", "seconds", "layers", "settings", "points", "train_curve", "epoch", "device", "skipped", "machine",
    "torch",
}  # fmt: skip


def job(dataset="pattern", protocol="paper", aggregator="genagg-sinh", seed=0, share=1.0, **settings):
    settings = {"epochs": 3, "hidden": 8, "layers": 2, "batch_size": 16} | settings
    return Job.of(Run(dataset, protocol, aggregator, seed, share), Settings(**settings))


def trained(trainer, steps=None):
    for i, _ in enumerate(trainer.run()):
        if steps is not None and i + 1 == steps:
            break
    return trainer


def values(row):
    """All but what the clock says."""
    return {name: value for name, value in row.items() if name != "seconds"}


@pytest.mark.parametrize("protocol", ["paper", "standard"])
@pytest.mark.parametrize("dataset", ["pattern", "cluster", "mnist", "cifar10", "cora"])
def test_every_data_set_and_protocol(dataset, protocol):
    row = trained(Trainer(job(dataset, protocol))).row()
    assert set(row) - {"val_accuracy"} == COLUMNS
    assert ("val_accuracy" in row) == (protocol == "standard")
    assert row["epochs"] == 3
    assert row["points"] == [1, 2, 3]
    assert len(row["curve"]) == len(row["train_curve"]) == 3
    assert [set(layer) for layer in row["layers"]] == [{"alpha", "beta", "nearest", "correlation"}] * 2
    if protocol == "paper":
        assert row["test_accuracy"] == max(row["curve"])
        assert row["curve"][row["epoch"] - 1] == row["test_accuracy"]


@pytest.mark.parametrize("aggregator", ["genagg-mlp", "genagg-invertible", "power", "softmax", "pna", "max"])
def test_every_aggregation_learns(aggregator):
    trainer = Trainer(job(aggregator=aggregator, epochs=2))
    before = [p.detach().clone() for p in trainer.parameters]
    row = trained(trainer).row()
    assert all((p != old).any() and p.isfinite().all() for p, old in zip(trainer.parameters, before, strict=True))
    layers = {"genagg": 2, "power": 2, "softmax": 2}.get(aggregator.split("-")[0], 0)
    assert len(row["layers"]) == layers


def test_it_learns_what_can_be_learned():
    assert trained(Trainer(job(epochs=40, aggregator="mean"))).row()["test_accuracy"] > 0.9


def test_train_accuracy_is_that_of_the_answers_trained_on():
    trainer = Trainer(job(epochs=1, batch_size=100))
    before = accuracy(trainer.network, trainer.data.train)
    assert trained(trainer).curves["train"] == [pytest.approx(before)]


def test_the_figures_are_those_of_the_network():
    trainer = trained(Trainer(job("cluster", "standard", epochs=4)))
    row = trainer.row()  # the network is now the chosen one
    assert row["val_accuracy"] == max(round(v, 5) for v in trainer.curves["val"])
    assert row["test_accuracy"] == pytest.approx(accuracy(trainer.network, trainer.data.test, balanced=True), abs=1e-5)
    assert row["val_accuracy"] == pytest.approx(accuracy(trainer.network, trainer.data.val, balanced=True), abs=1e-5)


def test_classes_weigh_as_the_others_are_large():
    trainer = Trainer(job("cluster", "standard"))
    weights = trainer._weights(torch.tensor([0, 0, 0, 5]))
    assert weights.tolist() == pytest.approx([0.25, 0, 0, 0, 0, 0.75])
    assert Trainer(job("cluster", "paper"))._weights(torch.tensor([0])) is None
    assert Trainer(job("mnist", "standard"))._weights(torch.tensor([0])) is None


def test_positions_are_features_in_the_standard_protocol_alone():
    assert Trainer(job("cifar10", "standard")).network.before.in_features == 5
    assert Trainer(job("cifar10", "paper")).network.before.in_features == 3


def test_the_cosine_ends_near_0_and_the_papers_rate_stays():
    for protocol, last in (("standard", 0.0), ("paper", 1e-3)):
        trainer = trained(Trainer(job(protocol=protocol, epochs=20, factor=10.0)))
        rates = [group["lr"] for group in trainer.optimiser.param_groups]
        assert rates[0] == pytest.approx(last, abs=2e-5)
        assert rates[1] == pytest.approx(10 * rates[0])


def test_a_gradient_that_is_not_finite_moves_nothing(tmp_path):
    trainer = Trainer(job(aggregator="mean"), tmp_path / "a.pt")
    trained(trainer, 1)
    before = [p.detach().clone() for p in trainer.parameters]
    trainer.data.train.x[:] = torch.inf
    try:
        trained(trainer, 1)
    finally:
        trainer.data.train.x[:] = 0.0
    assert all(torch.equal(p, old) for p, old in zip(trainer.parameters, before, strict=True))
    trainer.save()
    again = trained(Trainer(job(aggregator="mean"), tmp_path / "a.pt"))
    assert again.row()["skipped"] == 1


@pytest.mark.parametrize("captured", [False, True])
def test_a_gradient_is_clipped(captured, device):
    """Adam's first moment after one step is a tenth of the gradient."""
    norms = []
    for clip in (None, 1e-3, 1e3):
        one = job(clip=clip, epochs=1, batch_size=10**4)  # one step
        trainer = trained(Trainer(one, device=device.type, captured=captured))
        moments = [state["exp_avg"] for state in trainer.optimiser.optimizer.state.values()]
        norms.append(10 * torch.nn.utils.get_total_norm(moments).item())
    assert norms[1] == pytest.approx(1e-3, rel=1e-2)
    assert norms[0] == pytest.approx(norms[2], rel=1e-4)
    assert norms[0] > 1e-2


def test_the_time_to_make_a_batch_counts(monkeypatch):
    trainer = Trainer(job(epochs=1))
    whole = trainer.loader.epoch

    def slowly(number):
        for batch in whole(number):
            time.sleep(0.5)
            yield batch

    monkeypatch.setattr(trainer.loader, "epoch", slowly)
    assert trained(trainer).seconds >= 1.5


def test_seeds_differ_and_the_same_seed_gives_the_same():
    rows = [values(trained(Trainer(job(seed=seed))).row()) for seed in (0, 0, 1)]
    assert rows[0] == rows[1]
    assert rows[0]["layers"] != rows[2]["layers"]


class TestCaptured:
    """The steps of a CUDA graph; without a GPU the same steps, taken one by one."""

    @pytest.mark.parametrize("protocol", ["paper", "standard"])
    @pytest.mark.parametrize("dataset", ["pattern", "cluster", "mnist", "cifar10"])
    def test_it_trains_as_the_loop_does(self, dataset, protocol, device):
        """In 3 epochs of 3 steps, the last of them with fewer graphs."""
        one = job(dataset, protocol, "pna", learning_rate=1e-4)  # Adam makes much of gradients that are rounding alone
        loop, captured = (trained(Trainer(one, device=device.type, captured=by_graph)) for by_graph in (False, True))
        assert captured.curves["train"] == pytest.approx(loop.curves["train"], abs=0.02)
        for (name, a), b in zip(captured.network.state_dict().items(), loop.network.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, rtol=0.02, atol=5e-4, msg=lambda m, name=name: f"{name}: {m}")

    @pytest.mark.parametrize("aggregator", [name for name in AGGREGATORS if not name.startswith("authors")])
    def test_every_aggregation(self, aggregator, device):
        one = job("cluster", aggregator=aggregator, epochs=1)
        loop, captured = (trained(Trainer(one, device=device.type, captured=by_graph)) for by_graph in (False, True))
        assert captured.curves["train"] == pytest.approx(loop.curves["train"], abs=0.03)
        assert int(captured.skipped) == 0

    @pytest.mark.parametrize("protocol", ["paper", "standard"])
    def test_it_goes_on_where_it_was(self, tmp_path, protocol, device, monkeypatch):
        monkeypatch.setattr(captured, "CHUNK", 2)  # 2 and 1 of the 3 steps of an epoch
        one = job(protocol=protocol, aggregator="genagg-mlp")
        given = {"device": device.type, "captured": True}
        whole = trained(Trainer(one, **given))
        part = Trainer(one, tmp_path / "a.pt", **given)
        handed = 0
        for now in part.run():
            handed += now is not None
            if handed == 4:  # 2, 1, the test, 2
                break
        part.save()
        again = Trainer(one, tmp_path / "a.pt", **given)
        assert again.progress == part.progress == pytest.approx(5 / 3)
        assert values(trained(again).row()) == values(whole.row())
        for a, b in zip(again.parameters, whole.parameters, strict=True):
            assert torch.equal(a, b)

    def test_aggregations_have_looked_at_the_data(self, device):
        trainer = trained(Trainer(job("mnist"), device=device.type, captured=True))
        for seen in trainer._observers:
            assert seen.looks > 0
            assert seen.values.isfinite().all()
            assert seen.values.any()

    def test_where_it_can_be(self, monkeypatch):
        on_gpu = type("Fabric", (), {"device": torch.device("cuda"), "world_size": 1})()
        for one, can in (
            (job(), True),
            (job("cora"), False),
            (job(precision="bf16-mixed"), False),
        ):
            trainer = Trainer(one)
            assert trainer.captured is None
            monkeypatch.setattr(trainer, "fabric", on_gpu)
            assert trainer._may_capture() is can


class TestGoingOn:
    @pytest.mark.parametrize("protocol", ["paper", "standard"])
    @pytest.mark.parametrize("steps", [1, 4, 7])
    def test_from_any_step(self, tmp_path, protocol, steps):
        """Steps 4 and 8 of 3 batches an epoch are the ends of epochs."""
        one = job(protocol=protocol, aggregator="genagg-mlp")
        whole = trained(Trainer(one))
        part = trained(Trainer(one, tmp_path / "a.pt"), steps)
        part.save()
        again = Trainer(one, tmp_path / "a.pt")
        assert again.progress == part.progress > 0
        assert values(trained(again).row()) == values(whole.row())
        for a, b in zip(again.parameters, whole.parameters, strict=True):
            assert torch.equal(a, b)

    def test_what_is_counted_stays_on_the_device(self, tmp_path, monkeypatch):
        """`meta` stands for a GPU."""
        part = trained(Trainer(job(), tmp_path / "a.pt"), 2)
        part.save()
        again = Trainer(job(), tmp_path / "a.pt")
        fabric = type("Fabric", (), {"device": torch.device("meta")})()
        monkeypatch.setattr(again, "fabric", fabric)
        again._restore(torch.load(tmp_path / "a.pt", weights_only=True))
        assert {value.device.type for value in again.right.metric_state.values()} == {"meta"}

    def test_more_epochs_continue_the_papers_runs(self, tmp_path):
        trained(Trainer(job(epochs=2), tmp_path / "a.pt"))
        longer = Trainer(job(epochs=5), tmp_path / "a.pt")
        assert longer.epoch == 2
        assert values(trained(longer).row()) == values(trained(Trainer(job(epochs=5))).row())
        assert Trainer(job(epochs=2), tmp_path / "a.pt").done

    def test_another_runs_checkpoint_is_not_taken(self, tmp_path):
        trained(Trainer(job(), tmp_path / "a.pt"))
        assert Trainer(job(seed=1), tmp_path / "a.pt").epoch == 0
        assert Trainer(job(factor=2.0), tmp_path / "a.pt").epoch == 0

    @pytest.mark.parametrize("damage", [b"", b"not a checkpoint", "half"])
    def test_a_damaged_checkpoint_is_set_aside(self, tmp_path, damage):
        path = tmp_path / "a.pt"
        whole = trained(Trainer(job(), path)).row()
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if damage == "half" else damage)
        with pytest.warns(UserWarning, match=r"a\.pt is damaged"):
            trainer = Trainer(job(), path)
        assert trainer.epoch == 0
        assert values(trained(trainer).row()) == values(whole)
        assert list(tmp_path.glob("*.damaged-*"))

    def test_a_lack_of_memory_is_no_damage(self, tmp_path, monkeypatch):
        trained(Trainer(job(epochs=1), tmp_path / "a.pt"))

        def restore(self, state):
            raise torch.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(Trainer, "_restore", restore)
        with pytest.raises(torch.OutOfMemoryError):
            Trainer(job(epochs=1), tmp_path / "a.pt")
        assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]

    def test_a_share_is_tested_as_often(self):
        one = replace(job(share=0.5), epochs=6, every=2)
        assert trained(Trainer(one)).points == [2, 4, 6]
        assert trained(Trainer(replace(one, epochs=5))).points == [2, 4, 5]


def test_the_model_of_a_run():
    trainer = trained(Trainer(job("mnist", "standard")))
    trainer.row()
    content = trainer.content()
    model = Network(**content["settings"])
    model.load_state_dict(content["state_dict"])
    assert accuracy(model, trainer.data.test) == pytest.approx(accuracy(trainer.network, trainer.data.test))
    assert content["protocol"] == "standard"


@pytest.mark.filterwarnings("ignore")
def test_compiled_it_is_the_same(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda model, **options: calls.append(options) or model)
    trained(Trainer(job(epochs=1), compile=True))
    assert calls == [{"dynamic": True}]
