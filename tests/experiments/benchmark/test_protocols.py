"""What is trained on, what is tested on, and how accuracy is counted."""

import pytest
import torch

from fmean.experiments.benchmark import Network, accuracy
from fmean.experiments.benchmark.evaluation import new_accuracy
from fmean.experiments.benchmark.protocols import IGNORED, needed, splits
from fmean.experiments.benchmark.runs import Job, Run, Settings, appendix, grid

from . import tiny


def graphs_of(part):
    return [part.graph(i).x for i in range(len(part))]


class TestSplits:
    def test_paper_holds_out_every_tenth_graph_of_the_training_split(self):
        whole, found = graphs_of(tiny.load("pattern")), splits("pattern", "paper")
        assert found.val is None
        assert len(found.test) == 4
        assert len(found.train) == 36
        for i, x in enumerate(graphs_of(found.test)):
            assert torch.equal(x, whole[10 * i])
        rest = [x for i, x in enumerate(whole) if i % 10]
        assert all(torch.equal(a, b) for a, b in zip(graphs_of(found.train), rest, strict=True))

    def test_standard_has_the_official_ones(self):
        found = splits("mnist", "standard")
        assert [len(part) for part in found] == [40, 8, 6]
        assert torch.equal(found.test.x, tiny.load("mnist", "test").x)
        assert torch.equal(found.val.x, tiny.load("mnist", "val").x)

    def test_tuning_trains_on_the_papers_graphs_and_never_sees_its_test(self):
        tuning, paper = splits("mnist", "tuning"), splits("mnist", "paper")
        assert torch.equal(tuning.train.x, paper.train.x)
        assert torch.equal(tuning.test.x, tiny.load("mnist", "val").x)
        assert tuning.val is None
        assert needed("tuning") == ("train", "val")

    @pytest.mark.parametrize(("share", "count"), [(0.5, 18), (0.1, 4), (0.01, 1)])
    def test_a_share_of_the_training_graphs_evenly_spread(self, share, count):
        whole, found = splits("pattern", "paper"), splits("pattern", "paper", share)
        assert torch.equal(found.test.x, whole.test.x)
        assert len(found.train) == count
        assert torch.equal(found.train.graph(0).x, whole.train.graph(0).x)
        if share == 0.5:
            assert torch.equal(found.train.graph(17).x, whole.train.graph(34).x)

    def test_nodes_of_a_citation_network(self):
        graph = tiny.citation()
        paper = splits("cora", "paper")
        counted = paper.test.y != IGNORED
        assert torch.equal(counted.nonzero()[:, 0], torch.arange(0, 60, 10))
        assert torch.equal(paper.train.y != IGNORED, ~counted)
        assert torch.equal(paper.test.y[counted], graph.y[counted])
        official = splits("cora", "standard")
        for name, part in zip(("train", "test", "val"), official, strict=True):
            assert torch.equal(part.y != IGNORED, graph.masks[name])
            assert torch.equal(part.x, graph.x)


class TestAccuracy:
    y = torch.tensor([0, 0, 0, 1, 2, IGNORED])
    said = torch.tensor([0, 0, 1, 1, 0, 2])

    def test_plain_and_balanced_by_hand(self):
        plain, balanced = new_accuracy(4), new_accuracy(4, balanced=True)
        for metric in (plain, balanced):
            metric.update(self.said[:2], self.y[:2])
            metric.update(self.said[2:], self.y[2:])
        assert plain.compute().item() == pytest.approx(3 / 5)
        assert balanced.compute().item() == pytest.approx((2 / 3 + 1 + 0) / 3)  # there is none of class 3

    @pytest.mark.parametrize("dataset", ["cluster", "cifar10"])
    @pytest.mark.parametrize("balanced", [False, True])
    def test_of_a_network(self, dataset, balanced):
        graphs = tiny.load(dataset, "test")
        model = Network(graphs.x.size(1), graphs.classes, graphs.task, "max", hidden=8)
        right = []
        for i in range(len(graphs)):
            one = graphs.graph(i)
            y = model(one.x, one.edge_index, torch.zeros(len(one.x), dtype=torch.long), 1)
            right += list(zip(one.y.tolist(), (y.argmax(-1) == one.y).tolist(), strict=True))
        if balanced:
            classes = {y for y, _ in right}
            each = [[good for y, good in right if y == c] for c in classes]
            wanted = sum(sum(one) / len(one) for one in each) / len(each)
        else:
            wanted = sum(good for _, good in right) / len(right)
        for batch_size in (1, 3, 100):
            assert accuracy(model, graphs, batch_size, balanced) == pytest.approx(wanted)
        assert model.training  # as it was


class TestRuns:
    def test_names(self):
        assert Run("mnist", "standard", "genagg-sinh", 2).name == "mnist-standard-genagg-sinh-2"
        row = {"dataset": "pattern", "protocol": "paper", "aggregator": "sum", "seed": 1, "share": 0.01}
        assert Run.of(row).name == "pattern-paper-sum-1-share0.01"

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"dataset": "x"}, "unknown dataset 'x'; known are pattern"),
            ({"protocol": "x"}, "unknown protocol 'x'; known are paper, standard, tuning"),
            ({"aggregator": "x"}, "unknown aggregator 'x'"),
            ({"share": 0.0}, "share must be above 0"),
            ({"dataset": "cora", "share": 0.5}, "cora is one graph"),
        ],
    )
    def test_bad_runs(self, bad, message):
        with pytest.raises(ValueError, match=message):
            Run(**{"dataset": "pattern", "protocol": "paper", "aggregator": "mean", "seed": 0} | bad)

    @pytest.mark.parametrize(
        "bad",
        [
            {"epochs": 0}, {"factor": 0}, {"head": "x"}, {"precision": "8"}, {"hidden": -1}, {"clip": 0.0},
            {"clip": 1.0, "precision": "16-mixed"},
        ],
    )  # fmt: skip
    def test_bad_settings(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Settings(**bad)

    def test_epochs_and_batches(self):
        def job(dataset, protocol="paper", share=1.0, **settings):
            return Job.of(Run(dataset, protocol, "mean", 0, share), Settings(**settings))

        assert (job("pattern").epochs, job("mnist").epochs) == (60, 20)
        assert (job("pattern").batch_size, job("pattern", "standard").batch_size, job("cora").batch_size) == (32, 64, 1)
        smaller = job("pattern", share=0.1)
        assert (smaller.epochs, smaller.every) == (600, 10)  # as many steps
        assert job("pattern", share=0.01).epochs == 1000  # but no more than the paper's
        given = job("pattern", share=0.1, epochs=5)
        assert (given.epochs, given.every) == (5, 1)
        assert "epochs" not in job("pattern").identity  # more of them continue a run
        assert job("pattern", "standard", epochs=7).identity["epochs"] == 7  # the cosine ends with them

    def test_the_grid_and_the_appendix(self):
        runs = grid(("pattern", "mnist"), ("paper",), ("mean", "sum"), 2)
        assert len({run.name for run in runs}) == len(runs) == 8
        assert [run.seed for run in runs[:4]] == [0, 0, 1, 1]
        more = appendix(("mean",), 1)
        assert {(run.dataset, run.share) for run in more} == {
            ("pattern", 1.0), ("pattern", 0.1), ("pattern", 0.01), ("cora", 1.0), ("citeseer", 1.0), ("pubmed", 1.0)
        }  # fmt: skip
