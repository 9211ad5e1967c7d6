from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import ScalarFunction

__all__ = ["Exp"]


class Exp(ScalarFunction):
    r"""f(x) = e^(p·x),  f⁻¹(s) = log(s)/p, for any p ≠ 0, ±∞ included.

    p = 1: log-sum-exp (α = 1); p = ∞, −∞: max and min, exactly. There f is written as x and −x, with a
    maximum for the sum: lim log(Σ e^(p·x))/p = max x.

    Arguments:
        p: The exponent's factor.

    Example:
        >>> f = Exp(2)
        >>> f.inverse(f(torch.tensor([-1.0, 3.0])))
        tensor([-1.,  3.])
    """

    translates = True

    def __init__(self, p: float = 1.0) -> None:
        super().__init__()
        p = float(p)
        if p == 0 or math.isnan(p):
            raise ValueError(f"p must be a number other than 0 (for p → 0 use Identity), got {p}")
        self.p = p
        self.recipe = f"exp {p!r}"
        if math.isinf(p):
            self.reduction = "max"
            self.recipe = f"limit {math.copysign(1, p)} 0"

    @property
    def sign(self) -> float:
        return math.copysign(1.0, self.p)

    @property
    def formula(self) -> str:
        if self.reduction == "max":
            return f"e^(p·x), p → {'∞' if self.p > 0 else '−∞'}"
        return "e^x" if self.p == 1 else f"e^({self.p:g}·x)"

    def forward(self, x: Tensor) -> Tensor:
        return self.sign * x if self.reduction == "max" else torch.exp(self.p * x)

    def inverse(self, s: Tensor) -> Tensor:
        return self.sign * s if self.reduction == "max" else torch.log(s) / self.p

    # Σe^(p·x) = eᵐ·Σe^(p·x−m) with m the largest p·x, as in log-sum-exp: every term is at most 1.
    # m is kept finite, for ∞ − ∞ would turn an infinite x into NaN.
    def bound(self, x: Tensor) -> Tensor:
        largest = torch.finfo(x.dtype).max
        return (self.p * x).clamp(-largest, largest)

    def scaled(self, x: Tensor, m: Tensor) -> Tensor:
        return torch.exp(self.p * x - m)

    def scaled_inverse(self, s: Tensor, m: Tensor) -> Tensor:
        return (m + torch.log(s)) / self.p

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
