"""Rounding, made visible: the same computation with a random relative error in every operation.

How far the result moves is how well the problem can be solved at all in that precision (Monte Carlo arithmetic,
D. S. Parker, 1997): it knows of cancellation, of the exponent of an exponential, of an inverse that is none.
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Rounded"]

# What rounds. A negation, a maximum, a choice or a copy is exact.
# fmt: off
ROUNDS = {
    "add", "sub", "rsub", "mul", "div", "exp", "expm1", "log", "log1p", "sinh", "cosh", "asinh", "tanh", "sigmoid",
    "pow", "sqrt", "rsqrt", "hypot", "sum", "mean", "mm", "bmm", "addmm", "baddbmm", "mish", "mish_backward",
    "reciprocal", "logaddexp", "_softmax", "_softmax_backward_data", "tanh_backward", "sigmoid_backward",
    "native_batch_norm", "native_batch_norm_backward", "segment_sum", "scatter_add", "index_add",
}
# fmt: on


class Rounded(TorchDispatchMode):
    """Within this, float64 operations, those of a backward pass too, are as exact as `eps` and no more."""

    def __init__(self, eps: float, seed: int) -> None:
        super().__init__()
        self.eps, self.generator = eps, torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name not in ROUNDS:
            return out
        if name == "native_batch_norm":  # what is subtracted has been rounded: all of a batch moves alike
            y, mean, scale = out
            out = y + (mean - self.round(mean)) * scale * args[1], mean, scale
        if isinstance(out, (tuple, list)):
            return tuple(map(self.round, out))
        # One after another, n terms are rounded n times.
        terms = args[0].numel() / max(out.numel(), 1) if name in ("sum", "segment_sum") else 1.0
        return self.round(out, self.eps * max(terms, 1.0) ** 0.5)

    def round(self, out, eps=None):
        if not isinstance(out, torch.Tensor) or out.dtype != torch.float64:
            return out
        error = 2 * torch.rand(out.shape, dtype=torch.float64, generator=self.generator) - 1
        return out * (1 + (eps or self.eps) * error)
