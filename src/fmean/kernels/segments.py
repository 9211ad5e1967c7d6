from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Segments", "segment_gather", "segment_sum"]


# Two operators of our own, because torch.compile must not fuse them: Inductor (torch 2.13, CPU) gives wrong results
# for a float64 scatter_add next to float32 arithmetic, and corrupts memory with the index_add behind index_select.
@torch.library.custom_op("fmean::segment_sum", mutates_args=())
def segment_sum(x: Tensor, index: Tensor, size: int) -> Tensor:
    """Σ of the rows of x in each of `size` sets, ``[N, ...]`` → ``[size, ...]``; 0 for an empty set.

    float32 is summed in float64: one after another, 10,000 terms would lose three of seven digits.
    """
    out = torch.zeros((size, *x.shape[1:]), dtype=_wide(x), device=x.device)
    return _flat(out).scatter_add_(0, _expanded(index, x), _flat(x).to(out.dtype)).view(out.shape).to(x.dtype)


@torch.library.custom_op("fmean::segment_gather", mutates_args=())
def segment_gather(y: Tensor, index: Tensor) -> Tensor:
    """The row of y that belongs to the set of each element, ``[size, ...]`` → ``[N, ...]``."""
    return y.index_select(0, index)


@segment_sum.register_fake
def _(x: Tensor, index: Tensor, size: int) -> Tensor:
    return x.new_empty((size, *x.shape[1:]))


@segment_gather.register_fake
def _(y: Tensor, index: Tensor) -> Tensor:
    return y.new_empty((index.size(0), *y.shape[1:]))


# Each is the other's transpose, and so its gradient.
def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.size = inputs[0].size(0)


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return segment_gather(grad, *ctx.saved_tensors), None, None


def _gather_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return segment_sum(grad, *ctx.saved_tensors, ctx.size), None


segment_sum.register_autograd(_sum_backward, setup_context=_setup)
segment_gather.register_autograd(_gather_backward, setup_context=_setup)


def _vmap(operator: Any) -> None:
    @operator.register_vmap  # type: ignore[untyped-decorator]
    def rule(info: Any, dims: Any, x: Tensor, index: Tensor, *size: int) -> tuple[Tensor, int]:
        if dims[1] is None:  # the same sets in every entry of the batch, which can stand as one more feature
            return operator(x.movedim(dims[0], -1), index, *size), -1
        xs = [x] * info.batch_size if dims[0] is None else x.unbind(dims[0])
        return torch.stack([operator(a, i, *size) for a, i in zip(xs, index.unbind(dims[1]), strict=True)]), 0


_vmap(segment_sum)
_vmap(segment_gather)


@dataclass(frozen=True)
class Segments:
    """Which of `size` sets each element along dimension 0 belongs to.

    Arguments:
        index: The set of each element, ``[N]``; None: all elements form one set.
        size: The number of sets.

    Example:
        >>> sets = Segments(torch.tensor([0, 2, 0]), 3)
        >>> sets.sum(torch.tensor([1.0, 2.0, 3.0]))
        tensor([4., 0., 2.])
    """

    index: Tensor | None
    size: int

    @staticmethod
    def from_ptr(ptr: Tensor, elements: int) -> Segments:
        """The sets ``[ptr[i], ptr[i+1])``, found with no look at the values, hence with no wait for a GPU."""
        positions = torch.arange(elements, device=ptr.device, dtype=ptr.dtype)
        return Segments(torch.searchsorted(ptr, positions, right=True) - 1, ptr.numel() - 1)

    def sum(self, x: Tensor) -> Tensor:
        """Σ over each set, ``[N, ...]`` → ``[size, ...]``; 0 for an empty set."""
        if self.index is None:
            return x.sum(0, keepdim=True, dtype=_wide(x)).to(x.dtype)
        return segment_sum(x, self.index, self.size)  # type: ignore[no-any-return]

    def max(self, x: Tensor) -> Tensor:
        """The maximum of each set, ``[N, ...]`` → ``[size, ...]``; 0 for an empty set."""
        if self.index is None:
            return x.amax(0, keepdim=True)
        out = x.new_zeros(self.size, *x.shape[1:])
        out = _flat(out).scatter_reduce(0, _expanded(self.index, x), _flat(x), "amax", include_self=False)
        return out.view(self.size, *x.shape[1:])

    def gather(self, y: Tensor) -> Tensor:
        """What belongs to the set of each element, ``[size, ...]`` → ``[N, ...]`` (``[1, ...]`` for one set)."""
        return y if self.index is None else segment_gather(y, self.index)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float32 and x.device.type != "mps" else x.dtype


# PyTorch has a fast scatter for two dimensions and an index that is expanded, never copied.
def _flat(x: Tensor) -> Tensor:
    return x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def _expanded(index: Tensor, x: Tensor) -> Tensor:
    return index.unsqueeze(-1).expand(_flat(x).shape)
