from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import ScalarFunction

__all__ = ["Power", "pow_or_zero"]


def pow_or_zero(a: Tensor, p: float | Tensor) -> Tensor:
    """aᵖ for a > 0; 0 with gradient 0 at a = 0, where d aᵖ may be infinite."""
    zero = a == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, a) ** p)


class Power(ScalarFunction):
    r"""f(x) = |x|ᵖ,  f⁻¹(s) = s^(1/p), for any p ≠ 0, ±∞ included.

    p = 2: root mean square, euclidean norm, standard deviation; p = −1: harmonic mean of magnitudes;
    p = ∞, −∞: max and min magnitude, exactly. There f is written as |x| and −|x|, with a maximum for
    the sum: lim (Σ|x|ᵖ)^(1/p) = max|x|.

    Arguments:
        p: The exponent.

    Example:
        >>> f = Power(-1)
        >>> f(torch.tensor([-2.0, 4.0]))
        tensor([0.5000, 0.2500])
    """

    homogeneous = True

    def __init__(self, p: float = 2.0) -> None:
        super().__init__()
        p = float(p)
        if p == 0 or math.isnan(p):
            raise ValueError(f"p must be a number other than 0 (for p → 0 use LogAbs), got {p}")
        self.p = p
        if math.isinf(p):
            self.reduction = "max"
            self.recipe = f"limit {math.copysign(1, p)} 1"
        elif abs(p) <= 7:  # |x|ᵖ of a float32 lies within float64
            self.recipe = f"power {p!r}"

    @property
    def formula(self) -> str:
        if self.reduction == "max":
            return f"|x|^p, p → {'∞' if self.p > 0 else '−∞'}"
        return "1/|x|" if self.p == -1 else f"|x|^{self.p:g}"

    def forward(self, x: Tensor) -> Tensor:
        if self.reduction == "max":
            return math.copysign(1.0, self.p) * x.abs()
        return x.abs() ** self.p

    def inverse(self, s: Tensor) -> Tensor:
        return s.abs() if self.reduction == "max" else s ** (1 / self.p)

    # Σ|x|ᵖ = mᵖ·Σ(|x|/m)ᵖ with m the largest |x| (p > 0) or the smallest (p < 0): every term is at most 1.
    # m is kept finite, for ∞/∞ would turn an infinite x into NaN.
    def bound(self, x: Tensor) -> Tensor:
        a = x.abs().clamp_max(torch.finfo(x.dtype).max)
        return a if self.p > 0 else -a

    def scaled(self, x: Tensor, m: Tensor) -> Tensor:
        m = m.abs()
        ratio = torch.where(m == 0, 1.0 if self.p < 0 else 0.0, x.abs() / torch.where(m == 0, 1.0, m))
        return pow_or_zero(ratio.clamp_max(torch.finfo(x.dtype).max), self.p)

    def scaled_inverse(self, s: Tensor, m: Tensor) -> Tensor:
        return m.abs() * pow_or_zero(s, 1 / self.p)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return a.abs() * b.abs()

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
