"""`explain`: what a GenAgg has learned, in numbers, in a paragraph and in a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..genagg import GenAgg
from ..standard import STANDARD
from .curves import contour, curve, weights
from .nearest import Doubling, Likeness, influence, is_finite, likeness
from .sets import Range, draw_sets, range_of, still
from .words import paragraph, title

__all__ = ["Explanation", "Feature", "explain"]


@dataclass(frozen=True)
class Feature:
    """One feature of an aggregation with `channels`."""

    alpha: float
    beta: float
    nearest: str
    correlation: float
    growth: float


@dataclass(frozen=True)
class Explanation:
    """What `explain` found: print it, plot it, or take its numbers."""

    name: str
    channels: int
    alpha: float
    """α; where f has several channels with an α each, their mean, weighted as f⁻¹ weighs the channels."""
    beta: float
    nearest: list[tuple[str, float]]
    """All 13 standard aggregators with their correlation, best first."""
    growth: float
    """What the result is multiplied by when every element is there twice: 1 for a mean, 2 for a sum."""
    doubling: Doubling
    """The same in the form that fits best: for a log-sum-exp, say, a number is added."""
    influence: dict[str, float]
    """The share of |∂y/∂x| of the `largest`, `smallest`, … element, and the `equal` share 1/n."""
    evenness: float
    """Correlation of ⊕x before and after the signs of some elements are turned: 1 where signs do not matter."""
    range: Range
    features: list[Feature]
    """With `channels` > 1, each of them; otherwise none. The numbers above are then means over the features."""
    finite: bool
    """Whether all its numbers are; a training that diverged leaves NaN."""
    typical: GenAgg
    """The aggregation; with `channels` > 1 that of the feature that is most like the others."""
    feature: int
    """Which feature that is."""

    @property
    def text(self) -> str:
        """A paragraph for a person to read."""
        return paragraph(self)

    @property
    def alphas(self) -> list[float]:
        """α of each channel of f."""
        return [round(v, 6) for v in self.typical.alpha.flatten().tolist()]

    def __str__(self) -> str:
        ranking = ", ".join(f"{title(name)} {r:.4f}" for name, r in self.nearest[:3])
        f: Any = self.typical.f
        lines = [
            f"{self.name or 'GenAgg'}: α = {self.alpha:.2f}, β = {self.beta:.2f}, f = {getattr(f, 'formula', f)}",
            self.text,
            f"Nearest: {ranking}.",
        ]
        return "\n".join(lines)

    def to_dict(self, points: int = 121) -> dict[str, Any]:
        """All of it as plain numbers, for JSON; None stands for what is not finite."""
        low, high = self.bounds
        f: Any = self.typical.f
        low_n, middle_n, high_n = self.range.sizes
        found = {
            "name": self.name,
            "f": type(f).__name__,
            "formula": getattr(f, "formula", type(f).__name__),
            "channels": self.channels,
            "alpha": self.alphas,
            "mean_alpha": self.alpha,
            "beta": [round(self.typical.beta.item(), 6)],
            "finite": self.finite,
            "weights": weights(self.typical),
            "seen": self.range.seen,
            "values": dict(zip(("low", "median", "high"), self.range.values, strict=True)),
            "sizes": {"low": low_n, "median": middle_n, "high": high_n},
            "growth": self.growth,
            "doubling": vars(self.doubling),
            "influence": self.influence,
            "nearest": [[name, r] for name, r in self.nearest],
            "curve": curve(self.typical, low, high, self.nearest[0][0], points),
            "contour": contour(self.typical, low, high, 41),
            "text": self.text,
            "feature": self.feature,
            "features": [vars(feature) for feature in self.features],
        }
        return {name: _known(value) for name, value in found.items()}

    def plot(self, path: str | Path) -> Path:
        """Draws f, f⁻¹ and ⊕{x₀, x₁} into a file: PNG, SVG or PDF, by its suffix."""
        from .pictures import draw_explanation

        return draw_explanation(self, Path(path))

    @property
    def bounds(self) -> tuple[float, float]:
        """What to draw: the range met, and a little more."""
        low, _, high = self.range.values
        more = max(0.05 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-6)
        return low - more, high + more


def explain(agg: GenAgg, name: str = "", sets: int = 2000, seed: int = 0) -> Explanation:
    """What a GenAgg does: like which standard aggregators, on data as it has met in training.

    In training mode a GenAgg keeps running quantiles of its elements and set sizes (`agg.seen`; `agg.observe = False`
    switches that off). Here sets are drawn from them, or from N(0, 1) where there are none.

    Arguments:
        agg: A GenAgg with any f, shared by all features or held per feature.
        name: What to call it.
        sets: How many sets to try it on.
        seed: Of these sets.

    Example:
        >>> from fmean import standard
        >>> e = explain(standard("max"))
        >>> e.nearest[0]
        ('max', 1.0)
        >>> print(e.text)  # doctest: +ELLIPSIS
        This is max in all but name (correlation 1.0000). Of each set the largest element decides: ...
    """
    if not isinstance(agg, GenAgg):
        raise TypeError(f"agg must be a GenAgg, got {type(agg).__name__}; for a whole model see fmean.report")
    with torch.inference_mode(False):  # the influence of elements is their gradient
        return _explain(agg, name, sets, seed)


def _explain(agg: GenAgg, name: str, sets: int, seed: int) -> Explanation:
    found = likeness(agg, sets, seed)
    features = _features(agg, found) if agg.channels > 1 else []
    middle = _typical(features)
    typical = agg.feature(middle)
    drawn = draw_sets(typical, sets, seed)
    ours = still(typical)
    signs = torch.tensor([1.0, -1.0, -1.0], dtype=drawn.x.dtype)[torch.arange(drawn.x.size(0)) % 3].unsqueeze(-1)
    turned = replace(drawn, x=drawn.x * signs)
    ranked = found.nearest(0)
    if features:
        ranked = sorted(zip(STANDARD, found.correlation.mean(0).tolist(), strict=True), key=lambda pair: -pair[1])
    return Explanation(
        name=name,
        channels=agg.channels,
        alpha=_mean([f.alpha for f in features]) if features else _alpha(typical),
        beta=_mean([f.beta for f in features]) if features else typical.beta.item(),
        nearest=ranked,
        growth=found.growth.mean().item(),
        doubling=found.doubling[middle],
        influence=influence(typical, drawn),
        evenness=_correlation(drawn.of(ours), turned.of(ours)),
        range=range_of(agg),
        features=features,
        finite=is_finite(agg),
        typical=typical,
        feature=middle,
    )


def _features(agg: GenAgg, found: Likeness) -> list[Feature]:
    features = []
    for i in range(agg.channels):
        one, (name, r) = agg.feature(i), found.nearest(i)[0]
        features.append(Feature(_alpha(one), one.beta.item(), name, r, found.growth[i].item()))
    return features


def _typical(features: list[Feature]) -> int:
    """The feature that is most like the aggregator that most features are like."""
    if not features:
        return 0
    names = [feature.nearest for feature in features]
    common = max(set(names), key=lambda name: (names.count(name), name))
    return max(
        (i for i, name in enumerate(names) if name == common),
        key=lambda i: features[i].correlation,
    )


def _alpha(agg: GenAgg) -> float:
    alpha = agg.alpha.detach().flatten().double().cpu()
    return float((alpha * torch.tensor(weights(agg), dtype=alpha.dtype)).sum() if alpha.numel() > 1 else alpha.sum())


def _known(value: Any) -> Any:
    """None for what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items()}
    return [_known(one) for one in value] if isinstance(value, list) else value


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _correlation(a: Tensor, b: Tensor) -> float:
    pair = torch.stack([a.flatten(), b.flatten()]).nan_to_num(0.0, 0.0, 0.0)
    return float(torch.corrcoef(pair)[0, 1].nan_to_num(0.0))
