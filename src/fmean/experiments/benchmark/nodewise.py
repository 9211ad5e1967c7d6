"""The baselines without messages: what they do to each message is done to each node, once, or in a fused kernel."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv
from torch_geometric.nn.aggr import (
    MaxAggregation,
    MeanAggregation,
    PowerMeanAggregation,
    SoftmaxAggregation,
    SumAggregation,
)

from ...kernels import HAS_TRITON, csr_of_edges, fused_terms
from .. import baselines  # the formula of softmax for the kernels
from .aggregators import PNA

__all__ = ["NodewiseGraphConv"]

with warnings.catch_warnings():  # torch says once, of the first matrix, that these are in beta state
    warnings.simplefilter("ignore")
    torch.eye(1).to_sparse_csr()


class Neighbours:
    """The sets of neighbours as a sparse matrix A: Σⱼ hⱼ over the neighbours j of i is (A·h)ᵢ."""

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        rows = csr_of_edges(edge_index[0], edge_index[1], nodes, nodes)
        col = edge_index[0] if rows.col is None else rows.col
        self.n = rows.ptr.diff()[:, None].clamp_min(1)
        self.edges = rows.ptr, col, (nodes, nodes)

    def matrix(self, like: Tensor) -> Tensor:
        ptr, col, size = self.edges
        return torch.sparse_csr_tensor(ptr, col, like.new_ones(col.numel()), size, check_invariants=False)

    def sum(self, h: Tensor) -> Tensor:
        return torch.sparse.mm(self.matrix(h), h)  # type: ignore[no-any-return]

    def mean(self, h: Tensor) -> Tensor:
        return self.sum(h) / self.n

    def max(self, h: Tensor) -> Tensor:
        """Where several neighbours are the largest, one of them has the gradient, and not each its share as in PyG."""
        return torch.sparse.mm(self.matrix(h), h, "amax")  # type: ignore[no-any-return]

    def softmax(self, x: Tensor, t: Tensor) -> Tensor:
        # Σ e^(t·xⱼ)·xⱼ / Σ e^(t·xⱼ). PyG shifts t·x by the largest of each set; here it is the largest of all nodes,
        # and float64 has the room for what lies far below it.
        u = (t * x).double()
        e = (u - u.detach().amax(0)).exp()
        above, below = self.sum(torch.cat([e * x, e], -1)).chunk(2, -1)
        return (above / below.clamp_min(torch.finfo(torch.float64).tiny)).to(x.dtype)


class FusedNeighbours(Neighbours):
    """The same by the kernels of this library, for float32 on a GPU. Ties share the gradient of a maximum as in PyG."""

    def __init__(self, edge_index: Tensor, nodes: int) -> None:
        self.source, self.target, self.nodes = edge_index[0], edge_index[1], nodes
        rows = csr_of_edges(self.source, self.target, nodes, nodes)
        self.n = rows.counts[:, None].clamp_min(1)

    def _over(self, recipe: str, h: Tensor, *theta: Tensor) -> Tensor:
        y = fused_terms(h, recipe, theta, 1, False, self.target, None, self.nodes, self.source)
        assert y is not None
        return y

    def sum(self, h: Tensor) -> Tensor:
        return self._over("identity", h, _number(1.0, h.device))  # α = 1

    def mean(self, h: Tensor) -> Tensor:
        return self._over("identity", h, _number(0.0, h.device))

    def max(self, h: Tensor) -> Tensor:
        return self._over("limit 1.0 0", h, _number(0.0, h.device))

    def softmax(self, x: Tensor, t: Tensor) -> Tensor:
        return self._over(baselines.Softmax.recipe, x, t, _number(0.0, x.device))


@cache
def _number(value: float, device: torch.device) -> Tensor:
    return torch.full((1,), value, device=device)


def _neighbours(x: Tensor, edge_index: Tensor) -> Neighbours | None:
    if x.device.type == "cpu":
        return Neighbours(edge_index, x.size(0))
    if x.is_cuda and HAS_TRITON and x.dtype == torch.float32 and edge_index.numel():
        return FusedNeighbours(edge_index, x.size(0))
    return None


def _power(agg: Any, x: Tensor, over: Neighbours) -> Tensor:
    clamp = {"min": agg.min_value, "max": agg.max_value}
    return over.mean(x.clamp(**clamp).pow(agg.p)).clamp(**clamp).pow(1 / agg.p)


def _pna(agg: PNA, x: Tensor, over: Neighbours) -> Tensor:
    mean, squares = over.mean(torch.cat([x, x * x], -1)).chunk(2, -1)
    most, least = over.max(torch.cat([x, -x], -1)).chunk(2, -1)
    std = (squares - mean * mean).clamp(min=1e-5).sqrt()
    std = std.masked_fill(std <= math.sqrt(1e-5), 0.0)  # PyG's, where the gradient of √0 would be infinite
    return agg.scaled(torch.cat([mean, std, -least, most], -1), over.n)


_FORMULAS: dict[type[nn.Module], Callable[[Any, Tensor, Neighbours], Tensor]] = {
    SumAggregation: lambda agg, x, over: over.sum(x),
    MeanAggregation: lambda agg, x, over: over.mean(x),
    MaxAggregation: lambda agg, x, over: over.max(x),
    PowerMeanAggregation: _power,
    SoftmaxAggregation: lambda agg, x, over: over.softmax(x, agg.t),
    PNA: _pna,
}


class NodewiseGraphConv(GraphConv):  # type: ignore[misc]
    r"""PyG's GraphConv for the baselines of the benchmark, with PyG's results, parameters and state_dict.

    What an aggregation does to a message, such as xⱼ^p, is done once for each node, and its sums and maxima go over the
    edges: on a CPU as products with a sparse matrix, on a GPU in the kernels that GenAgg has as well. Messages are not
    made: on a CPU and PATTERN that is several times as fast. What is not float32 takes PyG's own way on a GPU.

    Shapes:
        `x` ``[N, in_channels]``, `edge_index` ``[2, E]`` → ``[N, out_channels]``

    Example:
        >>> conv = NodewiseGraphConv(8, 16, aggr=PowerMeanAggregation(learn=True))
        >>> conv(torch.randn(3, 8), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        formula = _FORMULAS.get(type(self.aggr_module))
        over = None if formula is None else _neighbours(x, edge_index)
        if formula is None or over is None:
            return super().forward(x, edge_index)  # type: ignore[no-any-return]
        y = formula(self.aggr_module, x, over)
        return self.lin_rel(y) + self.lin_root(x)  # type: ignore[no-any-return]
