"""Baselines over sparse products against PyG's own, which make messages."""

import pytest
import torch
from torch_geometric.nn import GraphConv

from fmean.experiments.benchmark import nodewise
from fmean.experiments.benchmark.aggregators import AGGREGATORS, aggregator
from fmean.experiments.benchmark.nodewise import NodewiseGraphConv

BASELINES = [name for name in AGGREGATORS if not name.startswith(("genagg", "authors"))]


def edges(kind: str, nodes: int) -> torch.Tensor:
    """Some nodes have no neighbours; sources and targets differ in number."""
    found = torch.randint(nodes - 3, (2, 6 * nodes))
    found = found.unique(dim=1)
    found = found[:, found[1].argsort(stable=True)]
    return found[:, torch.randperm(found.size(1))] if kind == "unsorted" else found


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("kind", ["sorted", "unsorted"])
@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_results_and_gradients_are_pygs(name, kind, scale):
    torch.manual_seed(0)
    theirs = GraphConv(8, 8, aggr=aggregator(name)(8)).double()
    ours = NodewiseGraphConv(8, 8, aggr=aggregator(name)(8)).double()
    ours.load_state_dict(theirs.state_dict())
    for parameter in [*theirs.aggr_module.parameters(), *ours.aggr_module.parameters()]:
        if parameter.numel() == 1:
            parameter.data.fill_(1.7)
    edge_index = edges(kind, 40)
    x, weight = torch.randn(40, 8, dtype=torch.float64) * scale, torch.randn(40, 8, dtype=torch.float64)
    found = []
    for conv in (theirs, ours):
        values = x.clone().requires_grad_()
        y = conv(values, edge_index)
        grads = torch.autograd.grad((y * weight).sum(), [values, *conv.parameters()])
        found.append([y, *grads])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("kind", ["sorted", "unsorted"])
@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])
def test_in_the_kernels_results_and_gradients_are_pygs(name, kind, scale, monkeypatch, device):
    """What is for a GPU: without one, by the kernels of the CPU."""
    if device.type == "cpu":
        monkeypatch.setattr(nodewise, "_neighbours", lambda x, edges: nodewise.FusedNeighbours(edges, x.size(0)))
    theirs = GraphConv(8, 8, aggr=aggregator(name)(8)).double().to(device)
    ours = NodewiseGraphConv(8, 8, aggr=aggregator(name)(8)).to(device)
    for parameter in theirs.aggr_module.parameters():
        if parameter.numel() == 1:
            parameter.data.fill_(1.7)
    ours.load_state_dict({name: value.float() for name, value in theirs.state_dict().items()})
    theirs.load_state_dict(ours.state_dict())
    edge_index = edges(kind, 40).to(device)
    x, weight = torch.randn(40, 8) * scale, torch.randn(40, 8)
    found = []
    for conv, dtype in ((theirs, torch.float64), (ours, torch.float32)):
        values = x.to(device, dtype).requires_grad_()
        y = conv(values, edge_index)
        grads = torch.autograd.grad((y * weight.to(y)).sum(), [values, *conv.parameters()])
        found.append([y, *grads])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b.double(), a, rtol=1e-3, atol=1e-4 * max(1.0, scale, a.abs().max().item()))


@pytest.mark.parametrize("name", BASELINES)
def test_no_messages_are_kept(name):
    """Nothing of the size of the edges times the features is saved for backward."""
    conv = NodewiseGraphConv(64, 64, aggr=aggregator(name)(64))
    edge_index = edges("sorted", 100).repeat(1, 5)
    edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        conv(torch.randn(100, 64, requires_grad=True), edge_index).sum()
    assert sizes
    assert max(sizes) <= 100 * 12 * 64 < edge_index.size(1) * 64


def test_softmax_far_below_the_largest_of_all_nodes():
    """Sets whose largest values lie 500 apart, which a shift by one number for all does not bring to 0/0."""
    x = torch.tensor([[500.0], [499.0], [1.0], [0.0]])
    edge_index = torch.tensor([[0, 1, 2, 3], [0, 0, 2, 2]])
    theirs = GraphConv(1, 1, aggr=aggregator("softmax")(1))
    ours = NodewiseGraphConv(1, 1, aggr=aggregator("softmax")(1))
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x, edge_index), theirs(x, edge_index))


def test_an_aggregation_without_a_formula_takes_pygs_way():
    from torch_geometric.nn.aggr import MedianAggregation

    torch.manual_seed(0)
    theirs, ours = GraphConv(4, 4, aggr=MedianAggregation()), NodewiseGraphConv(4, 4, aggr=MedianAggregation())
    ours.load_state_dict(theirs.state_dict())
    x, edge_index = torch.randn(9, 4), edges("sorted", 9)
    assert torch.equal(ours(x, edge_index), theirs(x, edge_index))
