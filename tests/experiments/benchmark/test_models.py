"""The networks, their aggregations, and the files they are kept in."""

import pytest
import torch
from torch_geometric.nn import GraphConv

from fmean import GenAgg, nn
from fmean.experiments.benchmark import Network, load_model, save_model
from fmean.experiments.benchmark.aggregators import AGGREGATORS, PNA, aggregator, available
from fmean.experiments.benchmark.evaluation import accuracy, answer
from fmean.experiments.benchmark.nodewise import NodewiseGraphConv
from fmean.experiments.benchmark.runs import Job, Run, Settings
from fmean.experiments.benchmark.training import parameter_groups

from . import tiny

OWN = {
    "genagg-sinh": 12,  # ρ and c of two channels, ρ of one, ω of three, α of three, β
    "genagg-mlp": 22 + 19 + 2,  # f, f⁻¹, α and β
    "genagg-sinh-linear": 2 + 2,
    "genagg-sinh-steep": 2 + 2,
    "genagg-sinh-each": 64 * (2 + 2),
    "genagg-sinh-turns": 64 * (2 + 2),
    "genagg-invertible": 4 * 4 + 1 + 2,
    "power": 1,
    "softmax": 1,
    "pna": 12 * 64 * 64 + 64,
    "mean": 0,
    "sum": 0,
    "max": 0,
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(("task", "features", "classes"), [("node", 3, 2), ("graph", 1, 10)])
def test_parameter_counts(name, task, features, classes):
    network = Network(features, classes, task, name)
    linear = 64 * 64
    graph_conv = 2 * linear + 64
    whole = (features * 64 + 64) + 4 * graph_conv + 3 * (linear + 64) + (64 * classes + classes)
    assert sum(p.numel() for p in network.parameters()) == whole + 4 * OWN[name]
    narrow = Network(features, classes, task, name, head="narrow")
    less = 3 * (linear + 64) + 64 * classes - (64 * classes + 3 * classes**2 + 3 * classes)
    assert sum(p.numel() for p in narrow.parameters()) == whole + 4 * OWN[name] - (less if task == "node" else 0)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("dataset", ["cluster", "cifar10"])
def test_every_aggregation_runs_both_ways(name, dataset):
    graphs = tiny.load(dataset)
    network = Network(graphs.x.size(1), graphs.classes, graphs.task, name, hidden=8)
    from fmean.data import Loader

    batch = next(iter(Loader(graphs, 4)))
    y = answer(network, batch)
    assert y.shape == (4 if graphs.task == "graph" else 24, graphs.classes)
    y.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_layers_are_fused_for_genagg_and_nodewise_for_the_rest():
    ours, theirs = Network(3, 2, "node", "genagg-sinh"), Network(3, 2, "node", "mean")
    assert all(type(conv) is nn.GraphConv for conv in ours.convs)
    assert all(type(conv) is NodewiseGraphConv and isinstance(conv, GraphConv) for conv in theirs.convs)
    assert len({id(agg) for agg in ours.aggregations}) == 4  # each layer has its own
    assert all(isinstance(agg, GenAgg) for agg in ours.aggregations)


def test_the_network_of_the_leaderboard_normalises_and_adds():
    network = Network(5, 10, "graph", "mean", norm=True, residual=True, positions=True)
    assert len(network.norms) == 4
    network.eval()
    for conv, norm in zip(network.convs, network.norms, strict=True):
        for p in conv.parameters():
            torch.nn.init.zeros_(p)
        torch.nn.init.zeros_(norm.bias)
    x, pos, edges = torch.randn(4, 3), torch.rand(4, 2), torch.tensor([[0, 1, 2], [1, 2, 3]])
    y = network(x, edges, torch.zeros(4, dtype=torch.long), 1, pos)
    z = network.before(torch.cat([x, pos], -1)).mean(0, keepdim=True)  # the layers add Mish(0) = 0
    for k, linear in enumerate(network.after):
        z = linear(torch.nn.functional.mish(z) if k else z)
    torch.testing.assert_close(y, z)
    with pytest.raises(ValueError, match="made for nodes with positions"):
        network(x, edges)


def test_pna_is_the_papers_formula():
    x, index = torch.randn(7, 3, dtype=torch.float64), torch.tensor([0, 0, 0, 2, 2, 2, 2])
    pna = PNA(3).double()
    found = pna(x, index, dim_size=3)
    for i in (0, 2):
        rows = x[index == i]
        n = len(rows)
        parts = torch.cat([rows.mean(0), rows.std(0, correction=0), rows.amin(0), rows.amax(0)])
        torch.testing.assert_close(found[i], pna.linear(torch.cat([parts, parts * n, parts / n])))
    torch.testing.assert_close(found[1], pna.linear.bias)


def test_what_an_aggregation_learns_has_a_rate_of_its_own():
    for name, rates in (
        ("genagg-sinh", {1e-3, 3e-3}),
        ("genagg-mlp", {1e-3, 3e-3}),
        ("genagg-invertible", {1e-3, 3e-3}),
        ("power", {1e-3, 3e-3}),
        ("softmax", {1e-3, 3e-3}),
        ("pna", {1e-3}),
        ("mean", {1e-3}),
    ):
        network = Network(3, 2, "node", name)
        job = Job.of(Run("pattern", "paper", name, 0), Settings(factor=3))
        groups = parameter_groups(network, job)
        assert {round(group["lr"], 6) for group in groups} == rates
        fast = [p for group in groups if group["factor"] > 1 for p in group["params"]]
        assert len(fast) == (0 if len(rates) == 1 else sum(1 for agg in network.aggregations for _ in agg.parameters()))
        assert sum(len(group["params"]) for group in groups) == sum(1 for _ in network.parameters())


def test_the_learnable_aggregations():
    ours = {name for name in AGGREGATORS if name.startswith("genagg")}
    learning = {*ours, "power", "softmax", "authors"}
    assert {name for name, one in AGGREGATORS.items() if one.learns} == learning


def test_unknown_names():
    with pytest.raises(ValueError, match="unknown aggregator 'x'; known are genagg-sinh"):
        aggregator("x")
    with pytest.raises(ValueError, match="task must be node or graph, got 'edge'"):
        Network(3, 2, "edge", "mean")
    with pytest.raises(ValueError, match="head must be wide or narrow"):
        Network(3, 2, "node", "mean", head="long")
    assert set(available()) <= set(AGGREGATORS)


class TestFile:
    def test_round_trip(self, tmp_path):
        graphs = tiny.load("cluster", "test")
        model = Network(7, 6, "node", "genagg-invertible", hidden=8, layers=2, norm=True)
        save_model(model, tmp_path / "a.pt", "cluster", "standard", seed=3)
        again, info = load_model(tmp_path / "a.pt")
        assert (info["dataset"], info["protocol"], info["aggregator"]) == ("cluster", "standard", "genagg-invertible")
        assert info["seed"] == 3
        assert info["settings"]["layers"] == 2
        assert not again.training
        assert accuracy(again, graphs) == accuracy(model, graphs)

    @pytest.mark.parametrize("content", [b"", b"no model", None, {"format": "another"}, {"format": "fmean model 1"}])
    def test_what_is_no_model_is_named(self, tmp_path, content):
        path = tmp_path / "a.pt"
        path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
        with pytest.raises(ValueError, match=r"a\.pt is (not a model of fmean reproduce benchmark|marked)"):
            load_model(path)

    def test_a_file_runs_no_code(self, tmp_path):
        torch.save({"format": "fmean model 1", "settings": print}, tmp_path / "a.pt")
        with pytest.raises(ValueError, match="holds Python objects, not only tensors, and is not opened"):
            load_model(tmp_path / "a.pt")
