"""Aggregations without anything to learn that PyG has not: scaled, and of some of the features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import Aggregation

__all__ = ["PerFeature", "Scaled"]


class Scaled(Aggregation):  # type: ignore[misc]
    """a·⊕x + b, of each feature or of all; 0 for an empty set."""

    scale: Tensor
    shift: Tensor

    def __init__(self, aggr: nn.Module, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.aggr = aggr
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.shifts = bool((shift != 0).any())

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        y: Tensor = self.scale.to(x.dtype) * self.aggr(x, index, ptr, dim_size, dim)
        if self.shifts:
            there: Tensor = self.reduce(x.new_ones(x.size(dim), 1), index, ptr, dim_size, 0, reduce="max") > 0
            shape = [1] * y.dim()
            shape[dim] = -1
            y = y + self.shift.to(x.dtype) * there.view(shape).to(x.dtype)
        return y

    def __repr__(self) -> str:
        return f"Scaled({self.aggr})"


class PerFeature(Aggregation):  # type: ignore[misc]
    """Several aggregations, each of some of the features."""

    def __init__(self, aggrs: list[nn.Module], features: list[list[int]]) -> None:
        super().__init__()
        self.aggrs = nn.ModuleList(aggrs)
        for i, numbers in enumerate(features):
            self.register_buffer(f"features{i}", torch.tensor(numbers))
        self.register_buffer("back", torch.tensor([i for numbers in features for i in numbers]).argsort())

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        parts = [
            aggr(x.index_select(-1, getattr(self, f"features{i}")), index, ptr, dim_size, dim)
            for i, aggr in enumerate(self.aggrs)
        ]
        return torch.cat(parts, -1).index_select(-1, self.back)
