from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..functions.base import wide

__all__ = ["Segments", "segment_gather", "segment_sum"]


# Two operators of our own, because torch.compile must not fuse them: Inductor (torch 2.13, CPU) gives wrong results
# for a float64 scatter_add next to float32 arithmetic, and corrupts memory with the index_add behind index_select.
@torch.library.custom_op("fmean::segment_sum", mutates_args=())
def segment_sum(x: Tensor, index: Tensor, size: int) -> Tensor:
    """Σ of the rows of x in each of `size` sets, ``[N, ...]`` → ``[size, ...]``; 0 for an empty set.

    float32 is summed to float64: one after another, 10,000 terms would lose three of seven digits.
    """
    out = torch.zeros((size, *x.shape[1:]), dtype=wide(x), device=x.device)
    _flat(out).scatter_add_(0, _expanded(index, x), _flat(x).to(out.dtype))
    return out


@torch.library.custom_op("fmean::segment_gather", mutates_args=())
def segment_gather(y: Tensor, index: Tensor) -> Tensor:
    """The row of y that belongs to the set of each element, ``[size, ...]`` → ``[N, ...]``."""
    return y.index_select(0, index)


@segment_sum.register_fake
def _(x: Tensor, index: Tensor, size: int) -> Tensor:
    return x.new_empty((size, *x.shape[1:]), dtype=wide(x))


@segment_gather.register_fake
def _(y: Tensor, index: Tensor) -> Tensor:
    return y.new_empty((index.size(0), *y.shape[1:]))


# Their gradients, each the transpose of the other. As autograd functions, since torch.func does not know the
# gradients that are registered with an operator.
class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, index: Tensor, size: int) -> Tensor:
        return segment_sum(x, index, size)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Gather.apply(grads[0].to(ctx.dtype), *ctx.saved_tensors), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, dims: Any, x: Tensor, index: Tensor, size: int) -> tuple[Tensor, int]:
        return _batched(lambda x, index: _Sum.apply(x, index, size), info, dims, x, index)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(y: Tensor, index: Tensor) -> Tensor:
        return segment_gather(y, index)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.size, ctx.dtype = inputs[0].size(0), inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _Sum.apply(grads[0], *ctx.saved_tensors, ctx.size).to(ctx.dtype), None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, dims: Any, y: Tensor, index: Tensor) -> tuple[Tensor, int]:
        return _batched(_Gather.apply, info, dims, y, index)


def _batched(run: Any, info: Any, dims: Any, x: Tensor, index: Tensor) -> tuple[Tensor, int]:
    if dims[1] is None:  # the same sets in every entry of the batch, which can stand as one more feature
        return run(x.movedim(dims[0], -1), index), -1
    xs = [x] * info.batch_size if dims[0] is None else x.unbind(dims[0])
    return torch.stack([run(a, i) for a, i in zip(xs, index.unbind(dims[1]), strict=True)]), 0


@dataclass(frozen=True)
class Segments:
    """Which of `size` sets each element along dimension 0 belongs to.

    Arguments:
        index: The set of each element, ``[N]``; None: all elements form one set.
        size: The number of sets.

    Example:
        >>> sets = Segments(torch.tensor([0, 2, 0]), 3)
        >>> sets.sum(torch.tensor([1.0, 2.0, 3.0]))
        tensor([4., 0., 2.], dtype=torch.float64)
    """

    index: Tensor | None
    size: int

    @staticmethod
    def from_ptr(ptr: Tensor, elements: int) -> Segments:
        """The sets ``[ptr[i], ptr[i+1])``, found with no look at the values, hence with no wait for a GPU."""
        positions = torch.arange(elements, device=ptr.device, dtype=ptr.dtype)
        return Segments(torch.searchsorted(ptr, positions, right=True) - 1, ptr.numel() - 1)

    @staticmethod
    def of(elements: int, index: Tensor | None, ptr: Tensor | None, size: int) -> Segments:
        return Segments.from_ptr(ptr, elements) if index is None and ptr is not None else Segments(index, size)

    def sum(self, x: Tensor) -> Tensor:
        """Σ over each set, ``[N, ...]`` → ``[size, ...]``, float32 to float64; 0 for an empty set."""
        if self.index is None:
            return x.sum(0, keepdim=True, dtype=wide(x))
        return _Sum.apply(x, self.index, self.size)  # type: ignore[no-untyped-call, no-any-return]

    def max(self, x: Tensor) -> Tensor:
        """The maximum of each set, ``[N, ...]`` → ``[size, ...]``; −∞ for an empty set."""
        if self.index is None:
            return x.amax(0, keepdim=True) if x.size(0) else x.new_full((1, *x.shape[1:]), -torch.inf)
        # Not zeros: scatter_reduce counts what it starts from among those that share the gradient of a maximum of 0.
        out = x.new_full((self.size, *x.shape[1:]), -torch.inf)
        out = _flat(out).scatter_reduce(0, _expanded(self.index, x), _flat(x), "amax", include_self=False)
        return out.view(self.size, *x.shape[1:])

    def gather(self, y: Tensor) -> Tensor:
        """What belongs to the set of each element, ``[size, ...]`` → ``[N, ...]`` (``[1, ...]`` for one set)."""
        return y if self.index is None else _Gather.apply(y, self.index)  # type: ignore[no-untyped-call]


# PyTorch has a fast scatter for two dimensions and an index that is expanded, never copied.
def _flat(x: Tensor) -> Tensor:
    return x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def _expanded(index: Tensor, x: Tensor) -> Tensor:
    return index.unsqueeze(-1).expand(_flat(x).shape)
