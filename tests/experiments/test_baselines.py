"""The stacked baselines are PyG's own."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch_geometric.nn.aggr import MeanAggregation, PowerMeanAggregation, SoftmaxAggregation

from fmean.experiments.baselines import Mean, PowerMean, Softmax
from fmean.experiments.graphs import random_graphs
from fmean.kernels import plain

VALUES = {Softmax: torch.linspace(-40, 40, 13), PowerMean: torch.linspace(0.3, 4, 13)}


@pytest.mark.parametrize("path", [nullcontext, plain], ids=["fused", "plain"])
@pytest.mark.parametrize(
    ("ours", "pygs"), [(Softmax, SoftmaxAggregation), (PowerMean, partial(PowerMeanAggregation, clamp_min=1e-6))]
)
def test_values_and_gradients(ours, pygs, path):
    graphs = random_graphs(50, 1, torch.Generator().manual_seed(0))
    source, index = graphs.edges
    x = torch.randn(graphs.nodes, 13, requires_grad=True)
    a, b = ours(13), pygs(learn=True, channels=13)
    parameter = next(b.parameters())
    with torch.no_grad():
        assert torch.equal(a.value, parameter)  # the same start
        a.value.copy_(VALUES[ours])
        parameter.copy_(VALUES[ours])
    with path():
        y = a.neighbours(x, source, index, graphs.nodes)
    expected = b(x[source], index, dim_size=graphs.nodes)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    g = torch.randn_like(y)
    for mine, theirs in zip(
        torch.autograd.grad(y, [x, a.value], g), torch.autograd.grad(expected, [x, parameter], g), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("path", [nullcontext, plain], ids=["fused", "plain"])
def test_mean(path):
    graphs = random_graphs(20, 1, torch.Generator().manual_seed(0))
    source, index = graphs.edges
    x = torch.randn(graphs.nodes, 13)
    with path():
        y = Mean(13).neighbours(x, source, index, graphs.nodes)
    torch.testing.assert_close(y, MeanAggregation()(x[source], index, dim_size=graphs.nodes))
