"""A call of fused kernels: what they are told, which backend runs them, and how it is differentiated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functions.inversion import step_of_sample
from . import c_kernels
from .csr import CSR, csr_of_edges, csr_of_index, csr_of_ptr
from .objective import Objective

__all__ = ["Call", "FMean", "backend", "backward", "forward", "split"]


class Call(NamedTuple):
    """What the kernels are told beside tensors that have gradients."""

    source: Tensor | None
    target: Tensor | None
    """The index."""
    ptr: Tensor | None
    size: int
    recipe: str
    centred: bool
    strength: float
    """Weight of the inversion objective; 0: without it."""
    channels: int = 1
    """1: all features share the parameters; else every so many-th feature does."""

    def rows(self, x: Tensor) -> CSR:
        if self.ptr is not None:
            return csr_of_ptr(self.ptr, x.size(0))
        assert self.target is not None
        if self.source is None:
            return csr_of_index(self.target, self.size)
        return csr_of_edges(self.source, self.target, x.size(0), self.size)

    def sample(self, x: Tensor) -> tuple[int, int]:
        """Every how many-th element the inversion objective looks at, and how many numbers these are for one f."""
        elements = x.size(0) if self.source is None else self.source.numel()
        return _sample(elements, x.size(1) // self.channels)

    def sources(self, x: Tensor, rows: CSR) -> CSR:
        """The rows of the transposed matrix."""
        found: CSR | None = rows.__dict__.get("transposed")
        if found is None:
            assert self.source is not None
            assert self.target is not None
            found = csr_of_edges(self.target, self.source, self.size, x.size(0))
            if found is not rows:  # which would keep itself alive
                rows.__dict__["transposed"] = found
        return found


@lru_cache(maxsize=1024)
def _sample(elements: int, features: int) -> tuple[int, int]:
    step = step_of_sample(elements, elements * features)
    return step, -(-elements // step) * features


def backend(x: Tensor) -> Any:
    return _on_gpu() if x.is_cuda else c_kernels


@cache
def _on_gpu() -> Any:
    from . import triton_kernels

    return triton_kernels


def forward(x: Tensor, factor: Tensor | None, theta: Sequence[Tensor], call: Call, rows: CSR) -> Tensor:
    arguments = (call.recipe, call.centred, x, factor, rows, theta, call.channels)
    return backend(x).forward(*arguments)  # type: ignore[no-any-return]


def backward(
    grad: Tensor,
    x: Tensor,
    factor: Tensor | None,
    theta: Sequence[Tensor],
    call: Call,
    rows: CSR,
    by_x: bool,
    by_factor: bool,
    by_theta: bool = True,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None]:
    """∂L/∂x, ∂L/∂factor, ∂L/∂θ, and the inversion objective, where there is one.

    What nobody wants may be anything.
    """
    sources = None if call.source is None else partial(call.sources, x, rows)
    objective = Objective(call.strength, *call.sample(x)) if call.strength else None
    given = (grad.contiguous(), x, factor, rows, sources, theta)
    wanted = (by_x, by_factor, by_theta, objective)
    return backend(x).backward(  # type: ignore[no-any-return]
        call.recipe, call.centred, *given, *wanted, call.channels
    )


class FMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor | None, call: Call, rows: CSR, f: Any, *theta: Tensor) -> Tensor:
        ctx.save_for_backward(x, factor, *theta)
        ctx.call, ctx.rows, ctx.f = call, rows, f
        return forward(x, factor, theta, call, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        # Only with `create_graph` is there a graph to keep out of, which takes time.
        return _once(ctx, grad) if torch.is_grad_enabled() else _gradients(ctx, grad)


def _gradients(ctx: Any, grad: Tensor) -> Any:
    x, factor, *theta = ctx.saved_tensors
    by = *ctx.needs_input_grad[:2], any(ctx.needs_input_grad[5:])
    dx, dfactor, d, loss = backward(grad, x, factor, theta, ctx.call, ctx.rows, *by)
    if loss is not None:  # the tensor itself: to copy it would be one more kernel
        ctx.f._buffers["last_inversion_loss"] = loss
    return dx, dfactor, None, None, None, *split(d, theta)


_once = torch.autograd.function.once_differentiable(_gradients)


def split(d: Tensor, theta: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the parameters, in the shape of each, from all of them in a row; in C++, where it is fast."""
    if d.dim() == 2:  # [parameters, channels]
        sizes = [p.numel() // d.size(1) for p in theta]
        parts = torch.split(d[: sum(sizes)].t(), sizes, 1)
        return [part.reshape(p.shape) for part, p in zip(parts, theta, strict=True)]
    unflatten: Any = torch._C._nn.unflatten_dense_tensors
    return unflatten(d, theta)  # type: ignore[no-any-return]  # and what there is more is left out
