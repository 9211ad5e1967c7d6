from __future__ import annotations

import torch
from torch import Tensor

from .base import ScalarFunction

__all__ = ["Sigmoid"]


class Sigmoid(ScalarFunction):
    r"""f(x) = σ(x) = 1/(1 + e^(−x)),  f⁻¹(s) = log(s/(1 − s)).

    Values far from 0 count little, since f hardly changes there. Its values lie in (0, 1), and a sum of them does not:
    f⁻¹ takes what lies beyond, as with α > 0, for the nearest value within.
    """

    @property
    def formula(self) -> str:
        return "σ(x)"

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def inverse(self, s: Tensor) -> Tensor:
        return torch.logit(s, torch.finfo(s.dtype).eps)
