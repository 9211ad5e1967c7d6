"""`harden`: learned aggregations replaced by the standard ones they are most like."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import aggr as pyg
from torch_geometric.nn.aggr import Aggregation

from ..genagg import GenAgg
from ..nn.swap import unfuse
from ..standard import STANDARD, standard
from .nearest import Likeness, likeness
from .words import title

__all__ = ["Hardening", "PerFeature", "Replacement", "Scaled", "harden"]

# Where PyG has the same aggregator, it is taken: with it the layer is PyG's own throughout.
PYG = {"mean": pyg.MeanAggregation, "sum": pyg.SumAggregation, "min": pyg.MinAggregation, "max": pyg.MaxAggregation}


@dataclass(frozen=True)
class Replacement:
    """What became of one GenAgg, or of one feature of it."""

    layer: str
    feature: int | None
    nearest: str
    correlation: float
    replaced: bool
    scale: float
    shift: float

    def __str__(self) -> str:
        where = self.layer if self.feature is None else f"{self.layer}[{self.feature}]"
        is_like = f"{title(self.nearest)}, correlation {self.correlation:.4f}"
        if not self.replaced:
            return f"{where}: left as it is (nearest: {is_like})"
        fit = "" if self.scale == 1 and self.shift == 0 else f", as {self.scale:.4g}·⊕ + {self.shift:.3g}"
        return f"{where}: now {is_like}{fit}"


class Hardening(list[Replacement]):
    """Every GenAgg that was looked at, in the order of the model; print it."""

    def __str__(self) -> str:
        done = sum(one.replaced for one in self)
        return "\n".join([f"{done} of {len(self)} replaced.", *map(str, self)])


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


def harden(model: nn.Module, threshold: float = 0.99, calibrate: bool = True) -> Any:
    """A copy of a model with every GenAgg replaced by its nearest standard aggregator, where that is near enough.

    What has been done lies in `model.hardened`, to be printed. Layers of `fmean.nn` become PyG's own again.

    Arguments:
        model: Any module with GenAggs in it, or a GenAgg.
        threshold: The correlation from which on one is replaced, with `channels` each feature by itself. It is
            measured on sets like those it has met in training, see `explain`.
        calibrate: Replace it by the a·⊕ + b that fits best, where ⊕ itself is not as good: what follows a learned
            aggregation counts on its scale.

    Example:
        >>> from torch_geometric.nn import GraphConv
        >>> model = harden(GraphConv(8, 16, aggr=GenAgg("max")))
        >>> model.aggr_module
        MaxAggregation()
        >>> print(model.hardened)
        1 of 1 replaced.
        aggr_module: now max, correlation 1.0000
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be above 0 and at most 1, got {threshold}")
    model = copy.deepcopy(model)
    known: dict[int, nn.Module] = {}
    rows = Hardening()
    learned = [(name, m) for name, m in model.named_modules() if isinstance(m, GenAgg) and m.seen is not None]
    if not learned:
        raise ValueError(f"there is no GenAgg that learns in {type(model).__name__}")
    for name, agg in learned:
        known[id(agg)] = _replacement(name or type(agg).__name__, agg, threshold, calibrate, rows)
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            new = known.get(id(child), child)
            if new is not child:
                parent._modules[name] = new
                if name == "aggr_module":
                    parent.aggr = str(new)  # type: ignore[assignment]
                    unfuse(parent)
    hardened: Any = known.get(id(model), model)
    hardened.hardened = rows
    return hardened


def _replacement(name: str, agg: GenAgg, threshold: float, calibrate: bool, rows: Hardening) -> nn.Module:
    found = likeness(agg)
    groups: dict[str, list[int]] = {}  # by the standard aggregator; "" for those that are left
    fits: dict[int, tuple[float, float]] = {}
    for i in range(agg.channels):
        nearest, r = found.nearest(i)[0]
        near = r >= threshold - 1e-9
        fits[i] = _fit(found, i, STANDARD.index(nearest)) if calibrate and near else (1.0, 0.0)
        feature = i if agg.channels > 1 else None
        rows.append(Replacement(name, feature, nearest, r, near, *fits[i]))
        groups.setdefault(nearest if near else "", []).append(i)
    if list(groups) == [""]:
        return agg
    parts = {
        nearest: _standard(nearest, [fits[i] for i in features], agg) if nearest else agg.feature(features)
        for nearest, features in groups.items()
    }
    new = next(iter(parts.values())) if len(parts) == 1 else PerFeature(list(parts.values()), list(groups.values()))
    return new.to(agg.alpha.device).train(agg.training)


def _fit(found: Likeness, i: int, j: int) -> tuple[float, float]:
    """a and b of a·⊕ + b; 1 and 0, where these do as well."""
    a, b, spread = found.scale[i, j].item(), found.shift[i, j].item(), found.spread[i].item()
    b = 0.0 if abs(b) < 0.02 * spread else b
    return (1.0, 0.0) if abs(a - 1) < 0.01 and b == 0 else (a, b)


def _standard(name: str, fits: list[tuple[float, float]], agg: GenAgg) -> nn.Module:
    plain: nn.Module = PYG[name]() if name in PYG else standard(name)
    plain.to(agg.alpha)
    if all(fit == (1.0, 0.0) for fit in fits):
        return plain
    scale, shift = (agg.alpha.new_tensor(values).squeeze() for values in zip(*fits, strict=True))
    return Scaled(plain, scale, shift)
