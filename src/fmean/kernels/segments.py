from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Segments"]


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
        """Σ over each set, ``[N, ...]`` → ``[size, ...]``; 0 for an empty set.

        float32 is summed in float64: one after another, 10,000 terms would lose three of seven digits.
        """
        wide = torch.float64 if x.dtype == torch.float32 and x.device.type != "mps" else x.dtype
        if self.index is None:
            return x.sum(0, keepdim=True, dtype=wide).to(x.dtype)
        out = torch.zeros((self.size, *self._flat(x).shape[1:]), dtype=wide, device=x.device)
        out = out.scatter_add(0, self._expanded(x), self._flat(x).to(wide))
        return out.view(self.size, *x.shape[1:]).to(x.dtype)

    def max(self, x: Tensor) -> Tensor:
        """The maximum of each set, ``[N, ...]`` → ``[size, ...]``; 0 for an empty set."""
        if self.index is None:
            return x.amax(0, keepdim=True)
        out = x.new_zeros(self.size, *self._flat(x).shape[1:])
        out = out.scatter_reduce(0, self._expanded(x), self._flat(x), "amax", include_self=False)
        return out.view(self.size, *x.shape[1:])

    def gather(self, y: Tensor) -> Tensor:
        """What belongs to the set of each element, ``[size, ...]`` → ``[N, ...]`` (``[1, ...]`` for one set)."""
        return y if self.index is None else y.index_select(0, self.index)

    # PyTorch has a fast scatter for two dimensions and an index that is expanded, never copied.
    def _flat(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), -1) if x.dim() != 2 else x

    def _expanded(self, x: Tensor) -> Tensor:
        assert self.index is not None
        return self.index.unsqueeze(-1).expand(self._flat(x).shape)
