from __future__ import annotations

from torch import Tensor

from .base import ScalarFunction

__all__ = ["Identity"]


class Identity(ScalarFunction):
    r"""f(x) = x,  f⁻¹(s) = s: mean (α = 0) and sum (α = 1)."""

    homogeneous = True
    recipe = "identity"

    @property
    def formula(self) -> str:
        return "x"

    def forward(self, x: Tensor) -> Tensor:
        return x

    def inverse(self, s: Tensor) -> Tensor:
        return s
