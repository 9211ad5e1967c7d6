"""The models of the paper's regression experiments, stacked: one for each entry of the last dimension, side by side.

All parameters have that dimension first, and nothing mixes its entries, so the gradient of the sum of all losses is
that of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..functions import InvertibleNN
from ..genagg import GenAgg
from ..kernels import fused_squares
from .graphs import Graphs

__all__ = ["GNN", "Aggregator", "Stack", "restrain"]

Make = Callable[[int], Any]
"""Makes an aggregation with `neighbours`, of so many channels."""


class Stack(nn.Module):
    """``Graphs`` → ``[nodes, d, channels]``."""

    layers: nn.ModuleList
    """The aggregations."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def losses(self, graphs: Graphs, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The mean squared error of each model against ``y [nodes, d, channels]``, and its output if there is one."""
        y_hat = self(graphs)
        return (y_hat - y).square().mean((0, 1)), y_hat

    @torch.no_grad()
    def take(self, stack: Stack, entries: Tensor) -> None:
        """Makes these entries of another stack its own."""
        for mine, theirs in zip(self.parameters(), stack.parameters(), strict=True):
            mine.copy_(theirs[entries])


class Aggregator(Stack):
    """ŷᵢ = ⨁ xⱼ over the neighbours j of i, as in Aggregator Regression."""

    def __init__(self, make: Make, channels: int) -> None:
        super().__init__(channels)
        self.layers = nn.ModuleList([make(channels)])

    def forward(self, graphs: Graphs) -> Tensor:
        return self.layers[0].neighbours(self._x(graphs), *graphs.edges, graphs.nodes)  # type: ignore[operator, no-any-return]

    def _x(self, graphs: Graphs) -> Tensor:
        return graphs.features.unsqueeze(-1).expand(-1, -1, self.channels)

    def losses(self, graphs: Graphs, y: Tensor) -> tuple[Tensor, Tensor | None]:
        agg: Any = self.layers[0]
        x, (source, index) = self._x(graphs), graphs.edges
        if isinstance(agg, GenAgg):
            squares = fused_squares(x, agg.f, agg.alpha, agg.beta, source, index, graphs.nodes, y)
        else:
            squares = agg.squares(x, source, index, y)
        return super().losses(graphs, y) if squares is None else (squares / y[..., 0].numel(), None)


class GNN(Stack):
    """z ← Mish(W₁·z + W₂·⨁ z + b) four times, without Mish in the last, as in GNN Regression.

    PyG's `GraphConv(1, 1)`, with the start that PyG gives it: all z, W and b are scalars.
    """

    def __init__(self, make: Make, channels: int, depth: int = 4) -> None:
        super().__init__(channels)
        self.layers = nn.ModuleList([make(channels) for _ in range(depth)])
        self.root, self.neighbour, self.bias = (
            nn.Parameter(torch.empty(channels, depth).uniform_(-1, 1)) for _ in range(3)
        )

    def forward(self, graphs: Graphs) -> Tensor:
        z = graphs.features.expand(-1, self.channels)
        source, index = graphs.edges
        for k, layer in enumerate(self.layers):
            z = F.mish(z) if k else z
            y = layer.neighbours(z, source, index, graphs.nodes)  # type: ignore[operator]
            z = self.root[:, k] * z + self.neighbour[:, k] * y + self.bias[:, k]
        return z.unsqueeze(1)


@torch.no_grad()
def restrain(model: nn.Module, by: float, largest: float = 6.0, limit: float = 1e18) -> None:
    """Keeps every `InvertibleNN` below a limit on [−largest, largest], by bending those above it less: d ← d − by.

    One that learns min or max, a limit p → ±∞, would grow for as long as it is trained, until it overflows.
    """
    for f in model.modules():
        if isinstance(f, InvertibleNN):
            x = f.t.new_tensor([-largest, 0.0, largest], dtype=torch.float64)
            x = x if f.channels == 1 else x.unsqueeze(-1).expand(-1, f.channels)
            most = torch.stack([v.abs().amax(0) for v in f.layer_values(x)]).amax(0)
            above = ~(most < limit)  # NaN is above, too
            f.weights[..., 2] -= by * above.to(f.weights).unsqueeze(-1)
