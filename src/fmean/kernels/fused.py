"""The fused path: an aggregation as one operator that keeps nothing of the size of its terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..functions import InvertibleNN
from ..functions.inversion import step_of_sample
from . import c_kernels
from .csr import CSR, csr_of_edges, csr_of_index, csr_of_ptr
from .describe import describe
from .objective import Objective

__all__ = ["HAS_TRITON", "f_mean_operator", "fused_f_mean", "plain"]

HAS_TRITON = find_spec("triton") is not None

_plain = 0  # how many contexts `plain` are open


@contextmanager
def plain() -> Iterator[None]:
    """Within this context every aggregation takes the plain path, the reference for the fused ones.

    >>> from fmean import GenAgg
    >>> with plain():
    ...     y = GenAgg()(torch.randn(5, 2))
    """
    global _plain
    _plain += 1
    try:
        yield
    finally:
        _plain -= 1


def fused_f_mean(
    x: Tensor,
    f: Any,
    alpha: Any,
    beta: Any,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    source: Tensor | None = None,
    factor: Tensor | None = None,
) -> Tensor | None:
    """The f-mean of x, ``[N, ...]``, by fused kernels, or None where there are none for this f and these inputs.

    Arguments:
        source: The row of x that each element is; without it, element i is row i.
        factor: What each element is multiplied by.
    """
    if not _may_fuse(x, index, ptr, alpha, beta, factor):
        return None
    found = describe(f, alpha)
    if found is None or not (found.learnable or x.is_cuda):
        return None
    parameters = [*found.parameters, _as_tensor(alpha, found.alphas, x)]  # θ
    centred = isinstance(beta, Tensor) or beta != 0
    if centred:
        parameters.append(_as_tensor(beta, 1, x))
    features = x.numel() // x.size(0)
    if source is not None and centred and found.recipe.startswith("limit"):
        return None  # backward has to find the largest element again, to the last bit
    if any(p.dtype != torch.float32 for p in parameters) or parameters[len(found.parameters)].numel() != found.alphas:
        return None
    if not x.is_cuda:
        # With dynamic shapes, torch.compile knows no number of features; a compiler for one serves for all.
        some = 16 if torch.compiler.is_compiling() else features
        if not (c_kernels.ready(found.recipe, centred, some) and _is_tame(f, x, beta, factor)):
            return None
    strength = float(getattr(f, "inversion", 0.0)) if f.training and torch.is_grad_enabled() else 0.0
    call = Call(source, None if ptr is not None else index, ptr, size, found.recipe, centred, strength)
    z = x if x.dim() == 2 else x.reshape(x.size(0), features)
    z = z if x.is_cuda else z.float()
    if torch.compiler.is_compiling():
        y = f_mean_operator(z, factor, parameters, *call)
        if strength:  # its value; its gradient is a part of the operator's
            detached = [p.detach() for p in parameters]
            f.last_inversion_loss.copy_(inversion_operator(z.detach(), factor, detached, *call))
    elif torch.is_grad_enabled():
        # The same without the operator's own cost, which is as much as that of the kernel.
        y = _FMean.apply(z, factor, call, f, *parameters)  # type: ignore[no-untyped-call]
    else:
        z = z.contiguous()
        y = _forward(z, factor, parameters, call, call.rows(z))
    y = y if x.dim() == 2 else y.view(size, *x.shape[1:])
    return y if y.dtype == x.dtype else y.to(x.dtype)  # type: ignore[no-any-return]


def _is_tame(f: Any, x: Tensor, beta: Any, factor: Tensor | None) -> bool:
    """Whether f stays within float32, in which a CPU's kernels compute, on all of x. An `InvertibleNN` may not."""
    if not isinstance(f, InvertibleNN):
        return True
    if torch.compiler.is_compiling():
        return False
    with torch.no_grad():
        largest = x.abs().max()
        if largest.isnan():  # which stays where it is
            largest = x.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).abs().max()
        largest = largest * (1 if factor is None else factor.abs().max()) * (1 + abs(beta))
        size = largest.double() * torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64, device=x.device)
        return all(float(values.abs().max()) < 1e12 for values in f.layer_values(size))


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

    def rows(self, x: Tensor) -> CSR:
        if self.ptr is not None:
            return csr_of_ptr(self.ptr, x.size(0))
        assert self.target is not None
        if self.source is None:
            return csr_of_index(self.target, self.size)
        return csr_of_edges(self.source, self.target, x.size(0), self.size)

    def sample(self, x: Tensor) -> tuple[int, int]:
        """Every how many-th element the inversion objective looks at, and how many numbers these are."""
        elements = x.size(0) if self.source is None else self.source.numel()
        step = step_of_sample(elements, elements * x.size(1))
        return step, -(-elements // step) * x.size(1)

    def sources(self, x: Tensor) -> CSR:
        """The rows of the transposed matrix."""
        assert self.source is not None
        assert self.target is not None
        return csr_of_edges(self.target, self.source, self.size, x.size(0))


def _may_fuse(x: Tensor, index: Any, ptr: Any, alpha: Any, beta: Any, factor: Tensor | None) -> bool:
    return (
        (x.is_cuda and HAS_TRITON) or x.device.type == "cpu"
    ) and (
        x.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and x.numel() > 0
        and not (index is None and ptr is None)
        and (index is None or index.numel() > 0)
        and (not isinstance(alpha, Tensor) or alpha.dim() <= 1)
        and (not isinstance(beta, Tensor) or beta.dim() == 0)
        and (factor is None or factor.dtype == torch.float32)
        and not _plain
        and not torch._C._are_functorch_transforms_active()
    )  # fmt: skip


def _as_tensor(value: Any, count: int, x: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        return x.new_full((count,), value, dtype=torch.float32)
    return value.expand(count) if value.dim() == 0 and count > 1 else value


def _backend(x: Tensor) -> Any:
    if x.is_cuda:
        from . import triton_kernels

        return triton_kernels
    return c_kernels


def _forward(x: Tensor, factor: Tensor | None, theta: Sequence[Tensor], call: Call, rows: CSR) -> Tensor:
    return _backend(x).forward(call.recipe, call.centred, x, factor, rows, theta)  # type: ignore[no-any-return]


def _backward(
    grad: Tensor, x: Tensor, factor: Tensor | None, theta: Sequence[Tensor], call: Call, rows: CSR, by_factor: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """∂L/∂x, ∂L/∂factor, ∂L/∂θ, and the inversion objective where there is one."""
    sources = None if call.source is None else partial(call.sources, x)
    objective, count = None, 1
    if call.strength:
        step, count = call.sample(x)
        objective = Objective(call.strength / count, step)
    arguments = (call.recipe, call.centred, grad.contiguous(), x, factor, rows, sources, theta, by_factor, objective)
    dx, dfactor, d, loss = _backend(x).backward(*arguments)
    return dx, dfactor, d, None if loss is None else loss / count


class _FMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor | None, call: Call, f: Any, *theta: Tensor) -> Tensor:
        x, rows = x.contiguous(), call.rows(x)
        ctx.save_for_backward(x, factor, *theta)
        ctx.call, ctx.rows, ctx.f = call, rows, f
        return _forward(x, factor, theta, call, rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, factor, *theta = ctx.saved_tensors
        dx, dfactor, d, loss = _backward(grads[0], x, factor, theta, ctx.call, ctx.rows, ctx.needs_input_grad[1])
        if loss is not None:
            ctx.f.last_inversion_loss.copy_(loss)
        return dx, dfactor, None, None, *_split(d, theta)


def _split(d: Tensor, theta: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of the parameters, in the shape of each, from all of them in a row; in C++, where it is fast."""
    unflatten: Any = torch._C._nn.unflatten_dense_tensors
    return unflatten(d[: sum(p.numel() for p in theta)], theta)  # type: ignore[no-any-return]


# The same as operators, for torch.compile and torch.export.
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
) -> Tensor:
    x, call = x.contiguous(), Call(source, index, ptr, size, recipe, centred, strength)
    return _forward(x, factor, theta, call, call.rows(x))


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
    by_factor: bool,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    x, call = x.contiguous(), Call(source, index, ptr, size, recipe, centred, strength)
    dx, dfactor, d, _ = _backward(grad, x, factor, theta, call, call.rows(x), by_factor)
    return dx, x.new_empty(0) if dfactor is None else dfactor, [part.clone() for part in _split(d, theta)]


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
) -> Tensor:
    x, call = x.contiguous(), Call(source, index, ptr, size, recipe, centred, strength)
    step, count = call.sample(x)
    return _backend(x).inversion(recipe, centred, x, factor, call.rows(x), theta, step)[0] / count  # type: ignore[no-any-return]


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
    return dx, dfactor if by_factor else None, d, *[None] * 7


f_mean_operator.register_autograd(_operator_gradients, setup_context=_setup)
