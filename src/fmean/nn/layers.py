"""PyG's GraphConv, SAGEConv and GINConv, fused with GenAgg.

What becomes of xᵢ itself is computed before the neighbours. Backward goes the other way, so it comes to the neighbours
first: a GPU is at its longest kernels while the host is still busy with launching all the rest.
"""

from __future__ import annotations

from typing import Any

import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parameter import UninitializedParameter

from .fused import Fused

__all__ = ["GINConv", "GraphConv", "SAGEConv"]


class GraphConv(Fused, pyg.GraphConv):  # type: ignore[misc]
    r"""xᵢ′ = W₁·xᵢ + W₂·⨁ⱼ wⱼᵢ·xⱼ, PyG's `GraphConv` with ⨁ = `aggr` over the neighbours j of i.

    Arguments, parameters, `state_dict` and results are those of `torch_geometric.nn.GraphConv`. If `aggr` is a
    `GenAgg`, no tensor of messages ``[E, in_channels]`` is made.

    Arguments:
        in_channels: The features of x; or a pair, those of the sources and of the targets; −1: from the first input.
        out_channels: The features of the result.
        aggr: A `GenAgg`; or what else PyG allows, which takes PyG's way. (default: `"add"`)
        bias: Whether the layer learns an additive bias.
        kwargs: Further arguments of `torch_geometric.nn.MessagePassing`, such as `flow`.

    Shapes:
        `x` ``[N, in_channels]`` or a pair ``([N, in_channels], [M, in_channels] or None)``, `edge_index` ``[2, E]``,
        `edge_weight` ``[E]`` → ``[N, out_channels]`` or ``[M, out_channels]``

    Example:
        >>> import torch
        >>> from fmean import GenAgg
        >>> conv = GraphConv(8, 16, aggr=GenAgg())
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> conv(x, edge_index, edge_weight=torch.tensor([0.5, 1.0, 2.0])).shape
        torch.Size([3, 16])
    """

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None, size: Any = None) -> Tensor:
        x = (x, x) if isinstance(x, Tensor) else x
        if not _may_go_first(self.lin_root, x[1]):
            return super().forward(x, edge_index, edge_weight, size)  # type: ignore[no-any-return]
        own = self.lin_root(x[1])
        y: Tensor = self.lin_rel(self.propagate(edge_index, x=x, edge_weight=edge_weight, size=size)) + own
        return y


class SAGEConv(Fused, pyg.SAGEConv):  # type: ignore[misc]
    r"""xᵢ′ = W₁·xᵢ + W₂·⨁ⱼ xⱼ, PyG's `SAGEConv` with ⨁ = `aggr` over the neighbours j of i.

    Arguments, parameters, `state_dict` and results are those of `torch_geometric.nn.SAGEConv`. If `aggr` is a
    `GenAgg`, no tensor of messages ``[E, in_channels]`` is made.

    Arguments:
        in_channels: The features of x; or a pair, those of the sources and of the targets; −1: from the first input.
        out_channels: The features of the result.
        aggr: A `GenAgg`; or what else PyG allows, which takes PyG's way. (default: `"mean"`)
        normalize: Whether each row of the result is divided by its euclidean norm.
        root_weight: Whether W₁·xᵢ is part of the result.
        project: Whether xⱼ ← relu(W₃·xⱼ + b) comes first.
        bias: Whether the layer learns an additive bias.
        kwargs: Further arguments of `torch_geometric.nn.MessagePassing`, such as `flow`.

    Shapes:
        `x` ``[N, in_channels]`` or a pair ``([N, in_channels], [M, in_channels] or None)``, `edge_index` ``[2, E]``
        → ``[N, out_channels]`` or ``[M, out_channels]``

    Example:
        >>> import torch
        >>> from fmean import GenAgg
        >>> conv = SAGEConv((8, 4), 16, aggr=GenAgg())
        >>> sources, targets = torch.randn(3, 8), torch.randn(2, 4)
        >>> conv((sources, targets), torch.tensor([[0, 1, 2], [1, 0, 1]])).shape
        torch.Size([2, 16])
    """

    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        x = (x, x) if isinstance(x, Tensor) else x
        if not (self.root_weight and _may_go_first(self.lin_r, x[1])):
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        own = self.lin_r(x[1])
        x = (self.lin(x[0]).relu(), x[1]) if self.project else x
        y: Tensor = self.lin_l(self.propagate(edge_index, x=x, size=size)) + own
        return F.normalize(y, dim=-1) if self.normalize else y


class GINConv(Fused, pyg.GINConv):  # type: ignore[misc]
    r"""xᵢ′ = h((1 + ε)·xᵢ + ⨁ⱼ xⱼ), PyG's `GINConv` with ⨁ = `aggr` over the neighbours j of i.

    Arguments, parameters, `state_dict` and results are those of `torch_geometric.nn.GINConv`. If `aggr` is a
    `GenAgg`, no tensor of messages ``[E, in_channels]`` is made.

    Arguments:
        nn: h, a network from ``[N, in_channels]`` to ``[N, out_channels]``.
        eps: Where ε starts.
        train_eps: Whether ε is a parameter (else a buffer).
        kwargs: Further arguments of `torch_geometric.nn.MessagePassing`: `aggr`, a `GenAgg` or what else PyG allows
            (default: `"add"`), `flow`, ...

    Shapes:
        `x` ``[N, in_channels]`` or a pair ``([N, in_channels], [M, in_channels] or None)``, `edge_index` ``[2, E]``
        → ``[N, out_channels]`` or ``[M, out_channels]``

    Example:
        >>> import torch
        >>> from fmean import GenAgg
        >>> conv = GINConv(torch.nn.Linear(8, 16), train_eps=True, aggr=GenAgg())
        >>> x, edge_index = torch.randn(3, 8), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> conv(x, edge_index).shape
        torch.Size([3, 16])
    """


def _may_go_first(linear: Any, x: Any) -> bool:
    """Not on input that the neighbours refuse, nor where sizes, hence weights, are found in PyG's order."""
    return isinstance(x, Tensor) and x.is_floating_point() and not isinstance(linear.weight, UninitializedParameter)
