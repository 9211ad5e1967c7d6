"""Which of the 13 standard aggregators an aggregation is like, and what it does with a set."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..genagg import GenAgg
from ..standard import STANDARD, standard
from .sets import Sets, draw_sets, still

__all__ = ["Doubling", "Likeness", "influence", "is_finite", "likeness"]

TWINS = 1e-3  # aggregators whose correlations differ by less are told apart by their growth
PLAIN = ("mean", "sum", "max", "min")  # named before others that are the same: max magnitude of what is never negative


@dataclass(frozen=True)
class Doubling:
    """What becomes of the result when every element of a set is there twice.

    `kind`: "same"; "plus", a number `by` is added, as in a log-sum-exp; "times", it is multiplied by the number, as in
    a sum; "other", none of these fits, as for a product.
    """

    kind: str
    by: float = 0.0


@dataclass(frozen=True)
class Likeness:
    """Of each feature (one, where all share): how like each standard aggregator, and how it behaves."""

    correlation: Tensor
    """With each of `STANDARD`, ``[channels, 13]``."""
    growth: Tensor
    """What the result is multiplied by when every element is there twice, ``[channels]``: 1 for mean, 2 for sum."""
    doubling: list[Doubling]
    """The same in the form that fits best, of each feature."""
    order: list[list[int]]
    """The 13 as numbers, best first, for each feature."""
    scale: Tensor
    shift: Tensor
    """The result is about scale·⊕ + shift of a standard ⊕, ``[channels, 13]``."""
    spread: Tensor
    """The standard deviation of the result, ``[channels]``."""

    def nearest(self, feature: int) -> list[tuple[str, float]]:
        """Names and correlations, best first."""
        row = self.correlation[feature].tolist()
        return [(STANDARD[i], row[i]) for i in self.order[feature]]


def is_finite(agg: GenAgg) -> bool:
    """Whether all its numbers are; a training that diverged leaves NaN."""
    return all(bool(v.isfinite().all()) for v in [agg.alpha, agg.beta, *agg.parameters()])


@torch.no_grad()
def likeness(agg: GenAgg, sets: int = 2000, seed: int = 0, drawn: Sets | None = None) -> Likeness:
    """Compares an aggregation with the 13 on sets of the sizes and elements it has met, or on sets that are given.

    Pearson's correlation ranks them. Twins that it cannot tell apart, such as root mean square and euclidean norm on
    sets of one size, are told apart by what becomes of the result when every element is there twice. A result that is
    the same for all sets, or not finite for most of them, is like none.
    """
    drawn = draw_sets(agg, sets, seed) if drawn is None else drawn
    ours = still(agg)
    y, twice = drawn.of(ours), drawn.repeated().of(ours)
    # Features that share an aggregation are compared each with itself: that they differ from each other says nothing.
    pooled = agg.channels == 1 and y.size(1) > 1

    def pool(sums: Tensor) -> Tensor:
        return sums.sum(0, keepdim=True) if pooled else sums

    def flat(v: Tensor) -> Tensor:
        return v.reshape(-1, 1) if pooled else v

    growth = _growth(flat(y), flat(twice))
    rows, growths, scales, shifts = [], [], [], []
    for name in STANDARD:
        theirs = drawn.of(_standard(name))
        a, b = _centred(y), _centred(theirs)
        aa, ab, bb = (pool((one * other).sum(0)) for one, other in ((a, a), (a, b), (b, b)))
        rows.append((ab / (aa * bb).sqrt()).nan_to_num(0.0, 0.0, 0.0))
        scale = (ab / bb).nan_to_num(0.0, 0.0, 0.0)
        scales.append(scale)
        shifts.append(flat((y - scale * theirs).nan_to_num(0.0, 0.0, 0.0)).mean(0))
        growths.append(_growth(flat(theirs), flat(drawn.repeated().of(_standard(name)))))
    correlation, standards = torch.stack(rows, -1), torch.stack(growths, -1)
    if not is_finite(agg):
        correlation = torch.zeros_like(correlation)  # sets of one element may come out well all the same
    order = [
        _order(correlation[i].tolist(), (standards[i] - growth[i]).abs().tolist()) for i in range(correlation.size(0))
    ]
    fit = torch.stack(scales, -1), torch.stack(shifts, -1), flat(_centred(y)).square().mean(0).sqrt()
    return Likeness(correlation, growth, _doubling(flat(y), flat(twice), growth), order, *fit)


def _order(correlation: list[float], distance: list[float]) -> list[int]:
    order = sorted(range(len(correlation)), key=lambda i: -correlation[i])
    twins = [i for i in order if correlation[i] > correlation[order[0]] - TWINS]

    def key(i: int) -> tuple[float, float, bool]:
        return round(distance[i], 2), -round(correlation[i], 9), STANDARD[i] not in PLAIN

    return sorted(twins, key=key) + order[len(twins) :]


@cache
def _standard(name: str) -> Any:
    return still(standard(name))


def _centred(y: Tensor) -> Tensor:
    """y less its mean; 0 where that is all rounding, and where most of y is not finite."""
    known = y.isfinite()
    y = torch.where(known, y, 0.0)
    centred = y - y.mean(0)
    varies = centred.abs().amax(0) > 1e-9 * (y.abs().amax(0) + 1e-3)
    return torch.where(varies & (known.double().mean(0) > 0.5), centred, 0.0)


def _growth(y: Tensor, twice: Tensor) -> Tensor:
    """The factor that makes y most like y of the doubled sets: Σ y·y₂ / Σ y²."""
    y, twice = (v.nan_to_num(0.0, 0.0, 0.0) for v in (y, twice))
    return ((y * twice).sum(0) / (y * y).sum(0)).nan_to_num(1.0, 1.0, 1.0)


def _doubling(y: Tensor, twice: Tensor, growth: Tensor) -> list[Doubling]:
    y, twice = (v.nan_to_num(0.0, 0.0, 0.0) for v in (y, twice))
    added = (twice - y).mean(0)

    def size(v: Tensor) -> list[float]:
        return v.square().mean(0).sqrt().tolist()

    spread = [max(a, b, 1e-9 * c) for a, b, c in zip(size(_centred(y)), size(_centred(twice)), size(y), strict=True)]
    rests = zip(size(twice - y), size(twice - y - added), size(twice - growth * y), spread, strict=True)
    found = []
    for i, (same, plus, times, unit) in enumerate(rests):
        if same <= 0.05 * unit:
            found.append(Doubling("same"))
        elif plus <= min(times, 0.25 * unit):
            found.append(Doubling("plus", added[i].item()))
        elif times <= 0.25 * unit:
            found.append(Doubling("times", growth[i].item()))
        else:
            found.append(Doubling("other"))
    return found


def influence(agg: GenAgg, drawn: Sets) -> dict[str, float]:
    """The share of |∂y/∂x| that falls on one element of a set, the mean over all sets of two or more.

    `equal` is 1/n, what every element would have if all had the same.
    """
    with torch.enable_grad():
        x = drawn.x.clone().requires_grad_()
        y = Sets(x, drawn.index, drawn.size).of(still(agg))
        (gradient,) = torch.autograd.grad(y.nan_to_num(0.0, 0.0, 0.0).sum(), x)
    size = gradient.nan_to_num(0.0, 0.0, 0.0).abs()

    def per_set(values: Tensor, reduce: str) -> Tensor:
        out = values.new_zeros(drawn.size, values.size(1))
        where = drawn.index.unsqueeze(-1).expand_as(values)
        return out.scatter_reduce(0, where, values, reduce, include_self=False)

    total = per_set(size, "sum")
    several = (drawn.n > 1) & (total > 0)
    if not bool(several.any()):
        return {}
    share = size / total[drawn.index].clamp_min(1e-300)

    def of(values: Tensor) -> float:
        """The share of the element with the greatest of these values."""
        greatest = values >= per_set(values, "amax")[drawn.index]
        theirs = per_set(torch.where(greatest, share, 0.0), "sum") / per_set(greatest.to(share), "sum")
        return float(theirs[several].mean())

    x = drawn.x
    shares = {"largest": of(x), "smallest": of(-x), "largest magnitude": of(x.abs()), "least magnitude": of(-x.abs())}
    return shares | {"equal": float((1 / drawn.n).expand_as(several)[several].mean())}
