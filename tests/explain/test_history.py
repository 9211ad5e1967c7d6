"""How aggregations move during training: in plain loops, under Lightning, in TensorBoard."""

import json

import pytest
import torch
from torch_geometric.nn import GraphConv

from fmean import GenAgg, History, report


@pytest.fixture
def model():
    return torch.nn.ModuleList([GraphConv(2, 2, aggr=GenAgg()), GraphConv(2, 2, aggr=GenAgg("mlp", channels=2))])


def train(model, steps, after):
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    x, edges = torch.randn(20, 2), torch.randint(0, 20, (2, 80))
    for _ in range(steps):
        optimiser.zero_grad()
        y = x
        for conv in model:
            y = conv(y, edges)
        y.square().sum().backward()
        optimiser.step()
        after()


def test_in_a_plain_loop(model, tmp_path):
    history = History(model, every=5)
    train(model, 12, history.step)
    assert history.steps == [0, 5, 10]
    first, second = (history.layers[f"{i}.aggr_module"] for i in (0, 1))
    assert [len(v) for v in (first["alpha"], first["beta"], first["nearest"])] == [3, 3, 3]
    assert len(first["alpha"][0]) == 3
    assert set(first["parameters"]) == {"p1", "c1", "q2", "p3", "c3", "w1", "w2", "w3"}
    assert first["alpha"][0] != first["alpha"][-1]
    assert second["parameters"] == {}
    history.save(tmp_path / "history.json")
    assert json.loads((tmp_path / "history.json").read_text()) == history.to_dict()
    for suffix in ("png", "svg"):
        assert history.plot(tmp_path / f"history.{suffix}").stat().st_size > 5000


def test_goes_on_after_a_stop(model):
    history = History(model, every=2)
    train(model, 5, history.step)
    again = History(model, every=2)
    again.load(json.loads(json.dumps(history.to_dict())))
    train(model, 4, again.step)
    assert again.steps == [0, 2, 4, 6, 8]
    with pytest.raises(ValueError, match="the history is of"):
        History(model[:1]).load(history.to_dict())


def test_tensorboard(model, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        train(model, 3, History(model, every=1, writer=writer).step)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()
    assert {"0.aggr_module/alpha/0", "0.aggr_module/beta", "0.aggr_module/p1"} <= set(tags["scalars"])
    assert len(events.Scalars("0.aggr_module/alpha/0")) == 3
    assert any("nearest" in tag for tag in tags["tensors"])


@pytest.mark.filterwarnings("ignore")
def test_lightning(tmp_path):
    import logging

    import pytorch_lightning as lightning

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.agg = GenAgg()

        def training_step(self, batch, _):
            return self.agg(batch[0]).square().sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.1)

    def run(epochs, checkpoint):
        task = Task()
        history = History(task, every=3)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 5, 2)), batch_size=1)
        trainer = lightning.Trainer(
            max_epochs=epochs, callbacks=[history.lightning()], default_root_dir=tmp_path, logger=False,
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, accelerator="cpu",
        )  # fmt: skip
        trainer.fit(task, loader, ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        return history

    assert run(1, None).steps == [0, 3, 6]
    assert run(2, tmp_path / "last.ckpt").steps[:4] == [0, 3, 6, 9]


def test_goes_on_at_the_step_where_it_was():
    history = History(GenAgg(), every=10)
    for _ in range(15):
        history.step()
    again = History(GenAgg(), every=10)
    again.load(json.loads(json.dumps(history.to_dict())))
    for _ in range(10):
        again.step()
    assert again.steps == [0, 10, 20]


@pytest.mark.parametrize("f", ["mlp", "invertible"])
def test_of_an_f_without_numbers_the_curve_is_kept(f, tmp_path):
    model = GenAgg(f)
    history = History(model, every=1)
    for _ in range(3):
        model(torch.randn(9, 2))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1)
        history.step()
    entry = history.layers["GenAgg"]
    assert len(entry["curves"]) == 3
    assert len(entry["curves"][0]["y"]) == getattr(model.f, "k", 1)
    assert entry["curves"][0] != entry["curves"][-1]
    assert history.plot(tmp_path / "a.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "record", [[], {"steps": 3}, {"steps": [0], "layers": []}, {"steps": [0], "layers": {"a": {"alpha": [1, 2]}}}]
)
def test_what_is_no_history(record, tmp_path):
    with pytest.raises(ValueError, match="history must be a"):
        report(GenAgg(), tmp_path / "a.html", history=record)


def test_bad_input():
    with pytest.raises(ValueError, match="no GenAgg that learns in Linear"):
        History(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="every must be 1 or more"):
        History(GenAgg(), every=0)
