"""A layer of ours and PyG's own with the same state, and the comparison of the two."""

import copy

import torch
import torch_geometric.nn as pyg
from torch import nn

import fmean.nn
from fmean import GenAgg

NAMES = ["GraphConv", "SAGEConv", "GINConv"]
EDGES = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(1))  # of 10 nodes: one is isolated


def layer(module, name, aggr, **kwargs):
    first = (nn.Sequential(nn.Linear(8, 4), nn.Tanh()),) if name == "GINConv" else (8, 4)
    return getattr(module, name)(*first, aggr=aggr, **kwargs)


def pair(name, aggr=None, dtype=torch.float64, **kwargs):
    """Ours and PyG's with the same state."""
    aggr = aggr or GenAgg(beta=0.3)
    ours, theirs = (layer(m, name, copy.deepcopy(aggr), **kwargs).to(dtype) for m in (fmean.nn, pyg))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def values(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def run(conv, x, edge_index, *args, **kwargs):
    """The output, and the gradient of x, of `edge_weight`, and of every parameter."""
    inputs = [v for v in (*(x if isinstance(x, tuple) else (x,)), *args) if isinstance(v, torch.Tensor)]
    y = conv(x, edge_index, *args, **kwargs)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    learned = [v for v in (*inputs, *conv.parameters()) if v.requires_grad]
    return [y, *torch.autograd.grad((weight * y).sum(), learned, allow_unused=True)]


def same(ours, theirs, *args, tolerance=None, **kwargs):
    close = {} if tolerance is None else {"rtol": tolerance, "atol": tolerance}
    for a, b in zip(run(ours, *args, **kwargs), run(theirs, *args, **kwargs), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, **close)
