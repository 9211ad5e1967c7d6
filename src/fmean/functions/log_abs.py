from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .base import ScalarFunction, wide

__all__ = ["LogAbs"]

# Stands for log 0 = −∞. Being finite, it keeps 0·log 0 = 0 in the gradients of α and x;
# divided by any n it is still far below the −104 at which e^s is 0 (−746 in float64).
LOG_ZERO = -1e30


class LogAbs(ScalarFunction):
    r"""f(x) = log|x|,  f⁻¹(s) = eˢ: geometric mean (α = 0) and product (α = 1) of magnitudes.

    A zero among the elements makes the result 0, with gradient 0; so does a product too large for its type
    make it ∞, with gradient 0.
    """

    recipe = "log_abs"

    @property
    def formula(self) -> str:
        return "log|x|"

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x, None).to(x.dtype)

    def inverse(self, s: Tensor) -> Tensor:
        over = s > math.log(torch.finfo(s.dtype).max)
        return torch.where(over, torch.inf, torch.where(over, 0.0, s).exp())

    # In float64: the errors of the logs of equal elements would add up, to 1e-3 of a product of 10,000.
    def scaled(self, x: Tensor, m: None) -> Tensor:
        log: Tensor = _LogAbs.apply(x)  # type: ignore[no-untyped-call]
        return log


class _LogAbs(torch.autograd.Function):
    """log|x|, whose gradient 1/x is 0 where |x| is less than the smallest normal number, and never infinite:
    of a product, y/x can leave the range where y is still within it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.to(wide(x)).abs().log().clamp_min(LOG_ZERO)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        ((x,), (grad,)) = ctx.saved_tensors, grads
        range_ = torch.finfo(x.dtype)
        tiny = x.abs() < range_.tiny
        return torch.where(tiny, 0.0, grad / torch.where(tiny, 1.0, x)).clamp(range_.min, range_.max).to(x.dtype)
