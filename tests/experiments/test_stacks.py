"""Stacked models are the models of the paper, side by side."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv

from fmean import GenAgg
from fmean.experiments.graphs import random_graphs, standard_targets
from fmean.experiments.regression import METHODS
from fmean.experiments.stacks import GNN, Aggregator, Stack
from fmean.kernels import c_compile, plain


def make(channels):
    agg = GenAgg("sinh", beta=0.2, channels=channels)
    with torch.no_grad():
        for parameter in agg.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return agg


def test_aggregator():
    graphs = random_graphs(10, 6, torch.Generator().manual_seed(0))
    stack = Aggregator(make, 13)
    y = stack(graphs)
    assert y.shape == (80, 6, 13)
    one = stack.layers[0].feature(4)(graphs.x, graphs.index, dim_size=80)
    torch.testing.assert_close(y[..., 4], one, rtol=1e-4, atol=1e-5)


def test_gnn_is_that_of_pyg():
    """Four `GraphConv(1, 1)` with Mish between them."""
    graphs = random_graphs(10, 1, torch.Generator().manual_seed(0))
    stack, i = GNN(make, 13), 7
    convs = [GraphConv(1, 1) for _ in stack.layers]
    z = graphs.features
    with torch.no_grad():
        for k, conv in enumerate(convs):
            conv.aggr_module = stack.layers[k].feature(i)
            conv.lin_root.weight.fill_(stack.root[i, k])
            conv.lin_rel.weight.fill_(stack.neighbour[i, k])
            conv.lin_rel.bias.fill_(stack.bias[i, k])
            z = conv(nn.functional.mish(z) if k else z, graphs.edges)
        torch.testing.assert_close(stack(graphs)[..., i], z, rtol=1e-4, atol=1e-4)


def test_it_starts_as_pyg_does():
    torch.manual_seed(0)
    stack = GNN(make, 2000)
    convs = [GraphConv(1, 1) for _ in range(2000)]
    for ours, theirs in (
        (stack.root, [c.lin_root.weight for c in convs]),
        (stack.neighbour, [c.lin_rel.weight for c in convs]),
        (stack.bias, [c.lin_rel.bias for c in convs]),
    ):
        values = torch.stack([p.detach().flatten()[0] for p in theirs])
        assert values.abs().max() <= 1
        assert (ours.std() - values.std()).abs() < 0.03
        assert ours.abs().max() <= 1


def test_take():
    three, one = Aggregator(make, 3), Aggregator(make, 2)
    one.take(three, torch.tensor([2, 0]))
    graphs = random_graphs(10, 6, torch.Generator().manual_seed(0))
    torch.testing.assert_close(one(graphs), three(graphs)[..., [2, 0]])


@pytest.mark.parametrize("method", [name for name in METHODS if name != "mean"])
@pytest.mark.parametrize("sign", [1, -1])
def test_losses_without_the_outputs(method, sign):
    """The fused sum of squares, and its gradients, are those of the squares of the outputs."""
    if c_compile.compiler() is None:
        pytest.skip("no C++ compiler")
    graphs = random_graphs(20, 6, torch.Generator().manual_seed(0))
    y = torch.randn(160, 6, 13)
    torch.manual_seed(1)
    stack = Aggregator(METHODS[method].make, 13)
    found = []
    for losses, y_hat in (stack.losses(graphs, y), Stack.losses(stack, graphs, y)):
        assert (y_hat is None) == (not found)
        weights = sign * torch.linspace(0.1, 2, 13)
        found.append([losses, *torch.autograd.grad((weights * losses).sum(), list(stack.parameters()))])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * theirs.abs().max().item())


def test_losses_where_there_are_no_kernels():
    graphs = random_graphs(5, 6, torch.Generator().manual_seed(0))
    stack = Aggregator(METHODS["softmax"].make, 13)
    with plain():
        losses, y_hat = stack.losses(graphs, standard_targets(graphs))
    assert y_hat.shape == (40, 6, 13)
    torch.testing.assert_close(losses, stack.losses(graphs, standard_targets(graphs))[0])
