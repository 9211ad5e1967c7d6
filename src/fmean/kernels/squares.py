"""The sum of squares of an aggregation against a target, with its gradient, in one pass on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import c_kernels
from .call import Call, split
from .fused import known, may_fuse
from .objective import Objective

__all__ = ["fused_squares", "squares_of_terms"]


def fused_squares(
    x: Tensor, f: Any, alpha: Any, beta: Any, source: Tensor, index: Tensor, size: int, target: Tensor
) -> Tensor | None:
    """Σ(y − target)² of the f-mean y of each channel, whose gradient is found along with it; or None, on a GPU too.

    Neither y nor its gradient is written, and the terms are computed once: for training that wants no more than this.
    `last_inversion_loss` is not either.
    """
    found = known(x, f, alpha, beta) if may_fuse(x, index, None, None) else None
    return None if found is None else squares_of_terms(x, *found[:4], source, index, size, target, found.strength)


def squares_of_terms(
    x: Tensor,
    recipe: str,
    theta: Sequence[Tensor | None],
    channels: int,
    centred: bool,
    source: Tensor,
    index: Tensor,
    size: int,
    target: Tensor,
    strength: float = 0.0,
) -> Tensor | None:
    """`fused_squares` for a recipe."""
    parameters = [p for p in theta if p is not None and p.dtype == torch.float32]
    if not may_fuse(x, index, None, None) or x.is_cuda or x.requires_grad or len(parameters) < len(theta):
        return None
    if x.size(-1) != channels or target.shape != (size, *x.shape[1:]) or target.requires_grad:
        return None
    held, features = channels > 1, x[0].numel()
    if not all(c_kernels.ready(recipe, centred, features, held, True, False, squares) for squares in (True, False)):
        return None
    call = Call(source, index, None, size, recipe, centred, strength, channels)
    return _Squares.apply(x.flatten(1).float(), target.flatten(1).float(), call, *parameters)  # type: ignore[no-untyped-call, no-any-return]


class _Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, call: Call, *theta: Tensor) -> Tensor:
        x, objective = x.contiguous(), None
        if call.strength:
            step, count = call.sample(x)
            objective = Objective(call.strength, step, count)
        given = (x, target.contiguous(), call.rows(x), theta, objective, call.channels)
        losses, d, pull = c_kernels.squares(call.recipe, call.centred, *given)
        ctx.save_for_backward(d, pull, *theta)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        d, pull, *theta = ctx.saved_tensors
        d = d * grads[0]
        if pull is not None:  # whatever the sign of the gradient, the objective is to become less
            d[: len(pull)] += pull * grads[0].abs()
        return None, None, None, *split(d, theta)
