"""The paper's inversion objective, carried by the output of an aggregation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["attach_inversion", "step_of_sample"]

# Enough for the mean of a smooth function of one variable; f is evaluated on no more than about this many elements.
SAMPLE = 4096


class _Attach(torch.autograd.Function):
    """The identity on y. In backward, `loss` receives the gradient Σ|∂L/∂y| and so joins the user's own L;
    one loss for each feature receives the sum over that feature.

    In proportion to ∂L/∂y, not with a fixed 1: whatever scales L, a gradient scaler or the division by the
    number of accumulated batches, then scales `loss` by the same factor.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, loss: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.dtype, ctx.per_feature = inputs[1].dtype, inputs[1].dim() > 0

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (grad,) = grads
        size = grad.abs()
        return grad, (size.flatten(0, -2).sum(0, dtype=ctx.dtype) if ctx.per_feature else size.sum(dtype=ctx.dtype))


def step_of_sample(elements: int, numbers: int) -> int:
    """Every how many-th element is looked at, where all of them hold so many numbers for one f."""
    return max(1, elements // max(1, SAMPLE * elements // numbers))


def attach_inversion(y: Tensor, f: Any, x: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""y, carrying `f.inversion` · E[(|f⁻¹(f(x))| − |x|)²] into the backward pass.

    Only the parameters of f learn from it; neither y nor the gradient of x changes. Under `no_grad` and in
    eval mode this does nothing.

    Arguments:
        y: The output of the aggregation.
        f: The function; one without a weight `inversion` needs no objective.
        x: What f was applied to, ``[N, ...]``.
        weight: Weights of the elements, of a shape that expands to that of x.
    """
    strength = getattr(f, "inversion", 0.0)
    if not (strength and f.training and torch.is_grad_enabled() and x.numel()):
        return y
    some = slice(None, None, step_of_sample(x.size(0), x.numel() // getattr(f, "channels", 1)))
    loss = f.inversion_loss(x[some].detach(), None if weight is None else weight[some].detach())
    if not torch._C._are_functorch_transforms_active():  # under torch.func there is no writing to a buffer
        f.last_inversion_loss.copy_(loss.detach().mean())
    attached: Tensor = _Attach.apply(y, strength * loss)  # type: ignore[no-untyped-call]
    return attached
