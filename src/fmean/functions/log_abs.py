from __future__ import annotations

import torch
from torch import Tensor

from .base import ScalarFunction

__all__ = ["LogAbs"]

# Stands for log 0 = −∞. Being finite, it keeps 0·log 0 = 0 in the gradients of α and x;
# divided by any n it is still far below the −104 at which e^s is 0 (−746 in float64).
LOG_ZERO = -1e30


class LogAbs(ScalarFunction):
    r"""f(x) = log|x|,  f⁻¹(s) = eˢ: geometric mean (α = 0) and product (α = 1) of magnitudes.

    A zero among the elements makes the result 0, with gradient 0.
    """

    @property
    def formula(self) -> str:
        return "log|x|"

    def forward(self, x: Tensor) -> Tensor:
        a = x.abs()
        tiny = a < torch.finfo(a.dtype).tiny  # 1/x would overflow: no gradient from here
        log = torch.log(torch.where(tiny, 1.0, a))
        return torch.where(tiny, a.detach().log().clamp_min(LOG_ZERO), log)

    def inverse(self, s: Tensor) -> Tensor:
        return s.exp()
