"""The rows of a CSR matrix behind an index, found once for each index and kept as long as it lives."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["CSR", "csr_of_index", "csr_of_ptr"]


class CSR(NamedTuple):
    """Row i has the elements ``order[ptr[i]]`` … ``order[ptr[i+1] − 1]``; without an order, just those."""

    ptr: Tensor
    order: Tensor | None


# All layers of a network, and forward and backward, share one edge_index: what was found for it is kept with it.
_found: WeakIdKeyDictionary = WeakIdKeyDictionary()


def csr_of_index(index: Tensor, size: int) -> CSR:
    """The rows of an index, sorted or not. Looks at its values, and so waits for the GPU, the first time only.

    >>> csr_of_index(torch.tensor([1, 0, 1]), 3)
    CSR(ptr=tensor([0, 1, 3, 3]), order=tensor([1, 0, 2]))
    """
    return _remembered(index, size, _sort)


def csr_of_ptr(ptr: Tensor, elements: int) -> CSR:
    """The rows between given bounds, once these have been looked at."""
    return _remembered(ptr, elements, _check_ptr)


def _remembered(tensor: Tensor, number: int, make: object) -> CSR:
    # edge_index[1] is a new tensor each time, but a view of the same one.
    owner = tensor if tensor._base is None else tensor._base
    if owner.is_inference():  # it has no version: a change of its values would go unseen
        return make(tensor, number)  # type: ignore[operator, no-any-return]
    key = (make, number, tensor.storage_offset(), tensor.shape, tensor.stride(), owner._version)
    known = _found.setdefault(owner, {})  # type: ignore[no-untyped-call]
    if key not in known:
        if len(known) >= 8:
            known.clear()
        known[key] = make(tensor, number)  # type: ignore[operator]
    return known[key]  # type: ignore[no-any-return]


def _sort(index: Tensor, size: int) -> CSR:
    if index.numel() == 0:
        return CSR(torch.zeros(size + 1, dtype=torch.long, device=index.device), None)
    index = index.contiguous().long()
    low, high, rises = torch.stack([*index.aminmax(), (index.diff() >= 0).all().long()]).tolist()
    if low < 0 or high >= size:
        raise ValueError(f"index must lie in 0 … {size - 1} (dim_size={size}), got values from {low} to {high}")
    order = None
    if not rises:
        index, order = index.sort(stable=True)
    return CSR(torch.searchsorted(index, torch.arange(size + 1, device=index.device)), order)


def _check_ptr(ptr: Tensor, elements: int) -> CSR:
    ptr = ptr.contiguous().long()
    first, last, lowest = torch.stack([ptr[0], ptr[-1], ptr.diff().min() if ptr.numel() > 1 else ptr[0]]).tolist()
    if first != 0 or last != elements or lowest < 0:
        raise ValueError(
            f"ptr must rise from 0 to the number of elements, {elements}, got values from {first} to {last}"
            + (" that fall in between" if lowest < 0 else "")
        )
    return CSR(ptr, None)
