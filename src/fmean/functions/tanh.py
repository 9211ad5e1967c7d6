from __future__ import annotations

import torch
from torch import Tensor

from .base import ScalarFunction

__all__ = ["Tanh"]


class Tanh(ScalarFunction):
    r"""f(x) = tanh(x),  f⁻¹(s) = artanh(s).

    Values far from 0 count little, since f hardly changes there. Its values lie in (−1, 1), and a sum of them does not:
    f⁻¹ takes what lies beyond, as with α > 0, for the nearest value within.
    """

    @property
    def formula(self) -> str:
        return "tanh(x)"

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)

    def inverse(self, s: Tensor) -> Tensor:
        return torch.atanh(s.clamp(*(sign * (1 - torch.finfo(s.dtype).eps) for sign in (-1, 1))))
