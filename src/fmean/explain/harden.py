"""`harden`: learned aggregations replaced by the standard ones they are most like."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch_geometric.nn import aggr as pyg

from ..genagg import GenAgg
from ..nn.swap import unfuse
from ..standard import STANDARD, standard
from .calls import Call, fit, listen
from .frozen import PerFeature, Scaled
from .nearest import Likeness, likeness
from .words import title

__all__ = ["Hardening", "Replacement", "harden"]

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
    """a and b; the means over the features where each has its own."""

    def __str__(self) -> str:
        where = self.layer if self.feature is None else f"{self.layer}[{self.feature}]"
        is_like = f"{title(self.nearest)}, correlation {self.correlation:.4f}"
        if not self.replaced:
            return f"{where}: left as it is (nearest: {is_like})"
        shift = f" {'+' if self.shift >= 0 else '−'} {abs(self.shift):.3g}"
        scaled = "" if self.scale == 1 and self.shift == 0 else f", as {self.scale:.4g}·⊕{shift}"
        return f"{where}: now {is_like}{scaled}"


class Hardening(list[Replacement]):
    """Every GenAgg that was looked at, in the order of the model; print it."""

    def __str__(self) -> str:
        done = sum(one.replaced for one in self)
        return "\n".join([f"{done} of {len(self)} replaced.", *map(str, self)])


@dataclass
class _Plan:
    """What is to become of one GenAgg of a model."""

    name: str
    agg: GenAgg
    groups: dict[str, list[int]]
    """The features by the standard aggregator that each becomes; "" for those that are left."""
    fits: list[tuple[float, float]]
    """a and b of each feature that has an f of its own; where all share it, one pair, or one for each as well."""
    found: list[tuple[str, float]]
    """Of each feature the nearest one, and its correlation."""
    now: nn.Module
    """What is in its place."""

    @property
    def leaves(self) -> bool:
        return list(self.groups) == [""]

    def put(self, root: nn.Module) -> None:
        """Puts what it is to become in its place, wherever that is in a model."""
        if self.leaves:
            return
        new = self._build()
        for parent in list(root.modules()):
            for name, child in list(parent._modules.items()):
                if child is self.now:
                    parent._modules[name] = new
                    if name == "aggr_module":
                        parent.aggr = str(new)  # type: ignore[assignment]
                        unfuse(parent)
        self.now = new

    def _build(self) -> nn.Module:
        parts = {
            nearest: _standard(
                nearest, [self.fits[i] for i in features] if self.agg.channels > 1 else self.fits, self.agg
            )
            if nearest
            else self.agg.feature(features)
            for nearest, features in self.groups.items()
        }
        new = next(iter(parts.values()))
        new = new if len(parts) == 1 else PerFeature(list(parts.values()), list(self.groups.values()))
        return new.to(self.agg.alpha.device).train(self.agg.training)

    def rows(self) -> list[Replacement]:
        left, held = self.groups.get("", []), self.agg.channels > 1
        a, b = (sum(values) / len(values) for values in zip(*self.fits, strict=True))
        return [
            Replacement(self.name, i if held else None, nearest, r, i not in left, *(self.fits[i] if held else (a, b)))
            for i, (nearest, r) in enumerate(self.found)
        ]


def harden(
    model: nn.Module,
    threshold: float = 0.99,
    calibrate: bool = True,
    run: Callable[[Any], object] | None = None,
) -> Any:
    """A copy of a model with every GenAgg replaced by its nearest standard aggregator, where that is near enough.

    What has been done lies in `model.hardened`, to be printed. Layers of `fmean.nn` become PyG's own again.

    Arguments:
        model: Any module with GenAggs in it, or a GenAgg.
        threshold: The correlation from which on one is replaced, with `channels` each feature by itself.
        calibrate: Replace it by the a·⊕ + b that fits best, where ⊕ itself is not as good: what follows a learned
            aggregation counts on its scale.
        run: Runs a model on real data, as in ``lambda model: model(x, edge_index)``. Correlations are then those on
            this data, within each feature, and a and b are fitted on it for each feature, one layer after the other,
            each in a model whose earlier layers are hardened already. Without it, sets are drawn that are like those
            met in training, see `explain`; where features with very different values share a GenAgg, such sets are
            not much like the real ones.

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
    if not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
        raise ValueError(f"threshold must be a number above 0 and at most 1, got {threshold!r}")
    root = nn.ModuleList([copy.deepcopy(model)])  # so that a GenAgg itself has a parent, too
    learned = {name: m for name, m in root[0].named_modules() if isinstance(m, GenAgg)}
    if not learned:
        raise ValueError(f"there is no GenAgg in {type(model).__name__}")
    calls = {} if run is None else _calls(root[0], list(learned.values()), run)
    plans = [_plan(name or type(agg).__name__, agg, threshold, calibrate, calls) for name, agg in learned.items()]
    for plan in plans:
        plan.put(root)
    if calibrate and run is not None:
        _calibrate(root, {id(plan.agg): plan for plan in plans}, calls, run)
    hardened: Any = root[0]
    hardened.hardened = Hardening(row for plan in plans for row in plan.rows())
    return hardened


def _calibrate(root: nn.Module, plans: dict[int, _Plan], calls: dict[int, Call], run: Callable[[Any], object]) -> None:
    """Fits a and b of one layer after the other, in the order in which they are called."""
    (model,) = root.children()
    training = model.training
    model.eval()
    for key, call in calls.items():
        plan = plans[key]
        given = {} if plan.leaves else listen(run, next(root.children()), [plan.now])
        if given:
            left = plan.groups.get("", [])
            plan.fits = [(1.0, 0.0) if i in left else ab for i, ab in enumerate(fit(call, given[id(plan.now)]))]
            plan.put(root)
    next(root.children()).train(training)


def _calls(model: nn.Module, aggs: list[GenAgg], run: Callable[[Any], object]) -> dict[int, Call]:
    """How each GenAgg is called when the model runs; layers are PyG's for that, which call the aggregation itself."""
    other = copy.deepcopy(model).eval()
    twins = [m for m in other.modules() if isinstance(m, GenAgg)]
    for layer in other.modules():
        unfuse(layer)
    names = {id(twin): id(agg) for twin, agg in zip(twins, aggs, strict=True)}
    return {names[key]: call for key, call in listen(run, other, twins).items()}


def _plan(name: str, agg: GenAgg, threshold: float, calibrate: bool, calls: dict[int, Call]) -> _Plan:
    call = calls.get(id(agg))
    found = likeness(agg, drawn=None if call is None else call.sets(agg.channels))
    groups: dict[str, list[int]] = {}
    fits, best = [], [found.nearest(i)[0] for i in range(agg.channels)]
    for i, (nearest, r) in enumerate(best):
        near = r >= threshold - 1e-9
        fitted = calibrate and near and call is None
        fits.append(_fit(found, i, STANDARD.index(nearest)) if fitted else (1.0, 0.0))
        groups.setdefault(nearest if near else "", []).append(i)
    return _Plan(name, agg, groups, fits, best, agg)


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
