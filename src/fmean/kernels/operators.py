"""Fused aggregations as operators, for torch.compile and torch.export."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .call import Call, backend, backward, forward, split

__all__ = ["f_mean_backward_operator", "f_mean_operator", "inversion_operator"]


@torch.library.custom_op("fmean::f_mean", mutates_args=())
def f_mean_operator(
    x: Tensor,
    factor: Tensor | None,
    theta: list[Tensor],
    source: Tensor | None,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    recipe: str,
    centred: bool,
    strength: float,
    channels: int,
) -> Tensor:
    x, call = x.contiguous(), Call(source, index, ptr, size, recipe, centred, strength, channels)
    return forward(x, factor, theta, call, call.rows(x))


@torch.library.custom_op("fmean::f_mean_backward", mutates_args=())
def f_mean_backward_operator(
    grad: Tensor,
    x: Tensor,
    factor: Tensor | None,
    theta: list[Tensor],
    source: Tensor | None,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    recipe: str,
    centred: bool,
    strength: float,
    channels: int,
    by_factor: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    x, call = x.contiguous(), Call(source, index, ptr, size, recipe, centred, strength, channels)
    dx, dfactor, d, _ = backward(grad, x, factor, theta, call, call.rows(x), True, by_factor)
    assert dx is not None
    return (
        dx,
        x.new_empty(0) if dfactor is None else dfactor,
        [part.clone(memory_format=torch.contiguous_format) for part in split(d, theta)],
    )


@torch.library.custom_op("fmean::inversion_value", mutates_args=())
def inversion_operator(
    x: Tensor,
    factor: Tensor | None,
    theta: list[Tensor],
    source: Tensor | None,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    recipe: str,
    centred: bool,
    strength: float,
    channels: int,
) -> Tensor:
    x, call = x.contiguous(), Call(source, index, ptr, size, recipe, centred, strength, channels)
    step, count = call.sample(x)
    found = backend(x).inversion(recipe, centred, x, factor, call.rows(x), theta, step, channels)
    return found[0].mean() / count  # type: ignore[no-any-return]


@inversion_operator.register_fake
def _(x: Tensor, factor: Any, theta: list[Tensor], *call: Any) -> Tensor:
    return theta[0].new_empty(())


@f_mean_operator.register_fake
def _(x: Tensor, factor: Any, theta: Any, source: Any, index: Any, ptr: Any, size: int, *call: Any) -> Tensor:
    return x.new_empty(size, x.size(1))


@f_mean_backward_operator.register_fake
def _(grad: Tensor, x: Tensor, factor: Any, theta: list[Tensor], *call: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    dfactor = x.new_empty(factor.shape if call[-1] else 0)
    return x.new_empty(x.shape), dfactor, [p.new_empty(p.shape) for p in theta]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, factor, theta, source, index, ptr, *ctx.call = inputs
    ctx.save_for_backward(x, factor, source, index, ptr, *theta)


def _operator_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    by_factor = ctx.needs_input_grad[1]
    x, factor, source, index, ptr, *theta = ctx.saved_tensors
    dx, dfactor, d = f_mean_backward_operator(grad, x, factor, theta, source, index, ptr, *ctx.call, by_factor)
    return dx, dfactor if by_factor else None, d, *[None] * 8


f_mean_operator.register_autograd(_operator_gradients, setup_context=_setup)
