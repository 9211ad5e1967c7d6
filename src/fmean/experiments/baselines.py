"""The paper's baselines, stacked: many learnable aggregations of PyG's, trained side by side.

Each of the `channels` entries of the last dimension has a parameter of its own, as in PyG with `channels=`, but other
dimensions may come before it. The fused kernels of this library compute them too, so that training takes minutes.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from ..kernels import Segments, fused_terms, squares_of_terms
from ..kernels.expression import Expression, exp, log, maximum, minimum
from ..kernels.recipe import P, Recipe, outside, within
from ..kernels.recipes import RECIPES

__all__ = ["Mean", "PowerMean", "Softmax"]

# The range to which what PowerMean takes the power of is clamped, as in the authors' code; PyG's default is 1e-4.
LOW, HIGH = 1e-6, 100.0


class _SoftmaxRecipe(Recipe):
    """p = t, α; the latter has no effect."""

    parameters, layout, terms_, scales_ = 2, (1, 1), 2, 1

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [v * exp(p[0] * v), exp(p[0] * v)]

    def overflow(self, t: P) -> Expression:
        return outside(within(t[1], 1e-30, 1e30))

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        return [v * exp(p[0] * v - h[0]), exp(p[0] * v - h[0])]

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        return [maximum(p[0] * low, p[0] * high)]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        return t[0] / t[1]


class _PowerMeanRecipe(Recipe):
    """p = p, α; the latter has no effect."""

    parameters, layout = 2, (1, 1)

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [exp(p[0] * log(_clamped(v)))]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        return exp(log(_clamped(t[0] / n)) / p[0])


def _clamped(v: Expression) -> Expression:
    return maximum(minimum(v, HIGH), LOW)


RECIPES |= {"softmax": _SoftmaxRecipe, "powermean": _PowerMeanRecipe}


class _Baseline(nn.Module):
    """An aggregation with one number to learn, which starts at 1 as in PyG."""

    recipe: str

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.value = nn.Parameter(torch.ones(channels))

    def neighbours(self, x: Tensor, source: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """⨁ x[source] over each set of `index`: ``[N, ..., channels]`` → ``[dim_size, ..., channels]``."""
        y = fused_terms(x, self.recipe, self._theta(), self.channels, False, index, None, dim_size, source)
        return self.plain(x[source], Segments(index, dim_size)) if y is None else y

    def squares(self, x: Tensor, source: Tensor, index: Tensor, target: Tensor) -> Tensor | None:
        """Σ(y − target)² of each channel, or None where there are no kernels for it."""
        size = target.size(0)
        return squares_of_terms(x, self.recipe, self._theta(), self.channels, False, source, index, size, target)

    def _theta(self) -> list[Tensor]:
        return [self.value, torch.zeros_like(self.value)]

    @abstractmethod
    def plain(self, x: Tensor, sets: Segments) -> Tensor:
        """The same in plain PyTorch, for elements x."""


class Softmax(_Baseline):
    """Σ x·e^(t·x) / Σ e^(t·x), PyG's `SoftmaxAggregation(learn=True)`."""

    recipe = "softmax"

    def plain(self, x: Tensor, sets: Segments) -> Tensor:
        u = self.value * x
        with torch.no_grad():
            largest = sets.gather(sets.max(u))
        w = (u - largest).exp()
        return (sets.sum(w * x) / sets.sum(w)).to(x.dtype)


class PowerMean(_Baseline):
    """(1/n·Σ xᵖ)^(1/p) of x within [1e-6, 100], PyG's `PowerMeanAggregation(learn=True, clamp_min=1e-6)`."""

    recipe = "powermean"

    def plain(self, x: Tensor, sets: Segments) -> Tensor:
        n = sets.sum(torch.ones_like(x))
        mean = sets.sum(x.clamp(LOW, HIGH) ** self.value) / n
        return (mean.clamp(LOW, HIGH) ** (1 / self.value)).to(x.dtype)


class Mean(nn.Module):
    """Σ x / n, with nothing to learn."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def neighbours(self, x: Tensor, source: Tensor, index: Tensor, dim_size: int) -> Tensor:
        alpha = x.new_zeros(self.channels)
        y = fused_terms(x, "identity", [alpha], self.channels, False, index, None, dim_size, source)
        if y is None:
            sets, elements = Segments(index, dim_size), x[source]
            y = (sets.sum(elements) / sets.sum(torch.ones_like(elements))).to(x.dtype)
        return y

    def squares(self, x: Tensor, source: Tensor, index: Tensor, target: Tensor) -> None:
        """As that of the others, but nothing is to be learned from it."""
