"""Sets as an aggregation has met them in training, drawn anew, to try it out on."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..genagg import GenAgg
from ..seen import LEVELS, Seen

__all__ = ["Range", "Sets", "draw_sets", "range_of", "still"]

ELEMENTS = 1_000_000  # of all sets and features together
LARGEST = 1000  # larger sets are drawn as ones of this size


@dataclass(frozen=True)
class Range:
    """What lies between the 0.5 % and the 99.5 % quantile, and the median: of the elements, and of the sizes."""

    values: tuple[float, float, float]
    sizes: tuple[float, float, float]
    seen: bool
    """Whether it was met in training. Otherwise it is assumed: elements N(0, 1), 1 to 10 in a set."""


@dataclass(frozen=True)
class Sets:
    x: Tensor
    """``[E, channels]``"""
    index: Tensor
    """``[E]``, sorted"""
    size: int

    def of(self, agg: Any) -> Tensor:
        """The aggregation of each set, ``[size, channels]``."""
        return agg(self.x, self.index, dim_size=self.size, dim=0)  # type: ignore[no-any-return]

    def repeated(self) -> Sets:
        """The same sets with every element twice."""
        return Sets(self.x.repeat_interleave(2, 0), self.index.repeat_interleave(2), self.size)

    @property
    def n(self) -> Tensor:
        """``[size, 1]``"""
        return torch.bincount(self.index, minlength=self.size).unsqueeze(-1)


def still(module: Any) -> Any:
    """A copy to try out: in float64 on the CPU, in eval mode, with nothing to learn."""
    module = copy.deepcopy(module)
    return module.to("cpu", torch.float64).eval().requires_grad_(False) if isinstance(module, nn.Module) else module


def range_of(agg: GenAgg) -> Range:
    seen = _looked(agg)
    if seen is None:
        return Range((-2.58, 0.0, 2.58), (1.0, 5.5, 10.0), False)
    values = seen.values.double().cpu()
    low, middle, high = values[..., 0].min(), values[..., len(LEVELS) // 2].median(), values[..., -1].max()
    sizes = seen.sizes.tolist()
    return Range(
        (float(low), float(middle), float(high)),
        (sizes[0], sizes[len(LEVELS) // 2], sizes[-1]),
        True,
    )


def draw_sets(agg: GenAgg, sets: int = 2000, seed: int = 0) -> Sets:
    """Sets with the sizes and the elements that `agg` has met in training, each element drawn alone.

    >>> drawn = draw_sets(GenAgg(channels=3), sets=100)
    >>> drawn.x.shape[1], drawn.size, int(drawn.n.min()), int(drawn.n.max())
    (3, 100, 1, 10)
    """
    generator = torch.Generator().manual_seed(seed)
    seen = _looked(agg)
    if seen is None:
        n = torch.randint(1, 11, (sets,), generator=generator)
        x = torch.randn(int(n.sum()), agg.channels, generator=generator, dtype=torch.float64)
    else:
        quantiles = seen.sizes.double().cpu().clamp(1, LARGEST)
        sets = max(50, min(sets, int(ELEMENTS / (quantiles.mean() * agg.channels))))
        n = _drawn(quantiles, sets, generator).round().long().squeeze(-1)
        x = _drawn(seen.values.double().cpu(), int(n.sum()), generator)
    return Sets(x, torch.arange(sets).repeat_interleave(n), sets)


def _looked(agg: GenAgg) -> Seen | None:
    return agg.seen if agg.seen is not None and float(agg.seen.looks) > 0 else None


def _drawn(quantiles: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Numbers with these quantiles at `LEVELS`, straight between them: ``[..., L]`` → ``[count, ...]``."""
    quantiles = quantiles.sort(-1).values.reshape(-1, len(LEVELS))  # those of running means need not be in order
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    u = torch.rand(count, quantiles.size(0), generator=generator, dtype=torch.float64)
    u = levels[0] + (levels[-1] - levels[0]) * u
    above = torch.searchsorted(levels, u).clamp(1, len(LEVELS) - 1)
    share = (u - levels[above - 1]) / (levels[above] - levels[above - 1])
    low, high = (quantiles.t().gather(0, i) for i in (above - 1, above))
    return low + share * (high - low)
