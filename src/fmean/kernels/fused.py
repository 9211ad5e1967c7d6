"""The fused path: an aggregation as one operator that keeps nothing of the size of its terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any, cast

import torch
from torch import Tensor

from ..functions import Magnitude, Sinh, SinhLinear, SinhLog
from .csr import CSR, csr_of_index, csr_of_ptr

__all__ = ["HAS_TRITON", "fused_f_mean", "plain", "sinh_f_mean", "sinh_operator", "sinh_parameters"]

ROWS = 4  # that a program of backward takes, and that share one line of its partial sums

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
    x: Tensor, f: Any, alpha: Any, beta: Any, index: Tensor | None, ptr: Tensor | None, size: int, dim: int
) -> Tensor | None:
    """The f-mean by a fused kernel, or None where there is none for this f and these inputs."""
    if not _fits(x, f, alpha, beta) or (index is None and ptr is None):
        return None
    z = x.movedim(dim, 0)
    y = sinh_f_mean(
        z.reshape(z.size(0), -1),
        index if ptr is None else None,
        ptr,
        size,
        beta if isinstance(beta, Tensor) else None,
        f.eps,
        sinh_parameters(f, alpha),
    )
    return y.view(size, *z.shape[1:]).movedim(0, dim)


def _fits(x: Tensor, f: Any, alpha: Any, beta: Any) -> bool:
    return (
        type(f) is Sinh
        and f.channels == 1
        and x.is_cuda
        and x.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and x.numel() > 0
        and isinstance(alpha, Tensor)
        and alpha.shape == (3,)
        and alpha.dtype == f.omega.dtype == torch.float32
        and (beta == 0 if not isinstance(beta, Tensor) else beta.dim() == 0 and beta.dtype == torch.float32)
        and not _plain
        and not torch._C._are_functorch_transforms_active()
        and HAS_TRITON
    )


def sinh_parameters(f: Sinh, alpha: Tensor) -> list[Tensor]:
    """ρ₁ c₁ ρ₂ ρ₃ c₃ ω α: what the kernels read, in this order."""
    one, two, three = cast(tuple[SinhLinear, Magnitude, SinhLog], tuple(f.parts))
    return [one.rho, one.c, two.rho, three.rho, three.c, f.omega, alpha]


def sinh_f_mean(
    x: Tensor,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    beta: Tensor | None,
    eps: float,
    parameters: list[Tensor],
) -> Tensor:
    """`augmented_f_mean` with f = Sinh of x, ``[N, D]``, for sets of `index` or `ptr`."""
    if torch.compiler.is_compiling():
        return sinh_operator(x, index, ptr, size, beta, eps, parameters)  # type: ignore[no-any-return]
    # The same without the operator's own cost, which is as much as that of the kernel.
    return _Sinh.apply(x, _csr(x, index, ptr, size), beta, eps, *parameters)  # type: ignore[no-untyped-call, no-any-return]


def _forward(x: Tensor, rows: CSR, beta: Tensor | None, eps: float, parameters: Sequence[Tensor]) -> Tensor:
    from .triton_sinh import sinh_forward_kernel

    size, features = rows.ptr.numel() - 1, x.size(1)
    y = x.new_empty(size, features)
    block = _block(features)
    with _on(x):
        sinh_forward_kernel[(size, _cdiv(features, block))](
            x.contiguous(), rows.ptr, rows.order, y, *parameters, beta, eps, features,
            SORTED=rows.order is None, CENTRED=beta is not None, BD=block, num_warps=1,
        )  # fmt: skip
    return y


def _backward(
    grad: Tensor, x: Tensor, rows: CSR, beta: Tensor | None, eps: float, parameters: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """The gradients of x, and of ρ₁ c₁ ρ₂ ρ₃ c₃ ω α β in a row of twelve."""
    from .triton_sinh import sinh_backward_kernel

    size, features = rows.ptr.numel() - 1, x.size(1)
    dx = x.new_empty(x.shape)
    block = _block(features)
    grid = (_cdiv(size, ROWS), _cdiv(features, block))
    partial = x.new_empty(grid[0] * grid[1], 12, dtype=torch.float32)
    with _on(x):
        sinh_backward_kernel[grid](
            grad.contiguous(), x.contiguous(), rows.ptr, rows.order, dx, partial,
            *parameters, beta, eps, features, size,
            ROWS=ROWS, SORTED=rows.order is None, CENTRED=beta is not None, BD=block, num_warps=1,
        )  # fmt: skip
    return dx, partial.sum(0)


class _Sinh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: CSR, beta: Tensor | None, eps: float, *parameters: Tensor) -> Tensor:
        ctx.save_for_backward(x, *rows, beta, *parameters)
        ctx.eps = eps
        return _forward(x, rows, beta, eps, parameters)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, ptr, order, beta, *parameters = ctx.saved_tensors
        dx, d = _backward(grads[0], x, CSR(ptr, order), beta, ctx.eps, parameters)
        return dx, None, None if beta is None else d[11], None, *d[:5].unbind(), d[5:8], d[8:11]


# The same as operators, for torch.compile and torch.export.
@torch.library.custom_op("fmean::sinh_f_mean", mutates_args=())
def sinh_operator(
    x: Tensor,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    beta: Tensor | None,
    eps: float,
    parameters: list[Tensor],
) -> Tensor:
    return _forward(x, _csr(x, index, ptr, size), beta, eps, parameters)


@torch.library.custom_op("fmean::sinh_f_mean_backward", mutates_args=())
def sinh_operator_backward(
    grad: Tensor,
    x: Tensor,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    beta: Tensor | None,
    eps: float,
    parameters: list[Tensor],
) -> tuple[Tensor, Tensor]:
    return _backward(grad, x, _csr(x, index, ptr, size), beta, eps, parameters)


@sinh_operator.register_fake
def _(x: Tensor, index: Any, ptr: Any, size: int, beta: Any, eps: float, parameters: Any) -> Tensor:
    return x.new_empty(size, x.size(1))


@sinh_operator_backward.register_fake
def _(
    grad: Tensor, x: Tensor, index: Any, ptr: Any, size: int, beta: Any, eps: float, parameters: Any
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(12, dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, index, ptr, ctx.size, beta, ctx.eps, parameters = inputs
    ctx.save_for_backward(x, index, ptr, beta, *parameters)


def _operator_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, index, ptr, beta, *parameters = ctx.saved_tensors
    dx, d = sinh_operator_backward(grad, x, index, ptr, ctx.size, beta, ctx.eps, parameters)
    return dx, None, None, None, None if beta is None else d[11], None, [*d[:5].unbind(), d[5:8], d[8:11]]


sinh_operator.register_autograd(_operator_gradients, setup_context=_setup)


def _csr(x: Tensor, index: Tensor | None, ptr: Tensor | None, size: int) -> CSR:
    if ptr is not None:
        return csr_of_ptr(ptr, x.size(0))
    assert index is not None
    return csr_of_index(index, size)


def _on(x: Tensor) -> Any:
    away = x.is_cuda and x.device.index != torch.cuda.current_device()
    return torch.cuda.device(x.device) if away else nullcontext()


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _block(features: int) -> int:
    """A power of two, at most 64: two features for each thread of a warp."""
    return min(64, max(4, 1 << (features - 1).bit_length()))
