"""The rows of a CSR matrix behind an index, found once for each index and kept as long as it lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = [
    "CSR",
    "LONG",
    "BlockCSR",
    "as_int64",
    "assure",
    "csr_of_edges",
    "csr_of_index",
    "csr_of_ptr",
    "extremes",
    "supply",
]

LONG = 512  # A row with more elements is given more threads of a GPU.
PIECES = 16  # The rows are divided into so many pieces of about equal work, for the threads of a CPU.


class Listed(NamedTuple):
    """Some of the rows, with the bounds of each."""

    rows: Tensor
    starts: Tensor
    ends: Tensor


@dataclass(frozen=True, eq=False)
class CSR:
    """Row i has the elements at positions ``ptr[i]`` … ``ptr[i+1] − 1``; the element at position e is ``x[col[e]]``
    and was given as number ``edge[e]``. Without col, or edge, that is e itself."""

    ptr: Tensor
    col: Tensor | None = None
    edge: Tensor | None = None
    short: bool = field(default=False, repr=False)
    """Whether it is known, without a look, that no row has more than LONG elements."""

    @property
    def size(self) -> int:
        return self.ptr.numel() - 1

    @property
    def counts(self) -> Tensor:
        """How many elements each row has."""
        return self.ptr.diff()

    def bounds(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Where some of the rows begin and end."""
        return self.ptr[rows], self.ptr[rows + 1]

    @cached_property
    def pieces(self) -> Tensor:
        """Bounds of pieces of rows, for a CPU. An empty row costs about as much as an element."""
        work = self.ptr + torch.arange(self.ptr.numel())
        bounds = torch.searchsorted(work, torch.linspace(0, float(work[-1]), PIECES + 1, dtype=torch.float64).long())
        bounds[0], bounds[-1] = 0, self.size
        return bounds

    def sample(self, step: int) -> tuple[Tensor, Tensor]:
        """The place in x, and the row, of every step-th of the elements as they were given."""
        known = self.__dict__.setdefault("samples", {})
        if step not in known:
            elements = int(self.ptr[-1]) if self.col is None else self.col.numel()
            positions = torch.arange(elements, device=self.ptr.device)
            rows = torch.searchsorted(self.ptr, positions, right=True) - 1
            places = positions if self.col is None else self.col
            if self.edge is not None:  # back into the order in which they were given
                rows, places = (torch.empty_like(t).scatter_(0, self.edge, t) for t in (rows, places))
            known[step] = places[::step].contiguous(), rows[::step].contiguous()
        return known[step]  # type: ignore[no-any-return]

    @cached_property
    def lists(self) -> list[Listed]:
        """The rows, those of equal length together, for a GPU: those up to LONG elements, then the longer ones.

        The longest come first: one that began last would be waited for when all others are done.
        """
        counts, rows = self.ptr.diff().sort(stable=True, descending=True)
        long = 0 if self.short else int((counts > LONG).sum())
        return [Listed(part, self.ptr[part], self.ptr[part + 1]) for part in (rows[long:], rows[:long])]


class BlockCSR(CSR):
    """Rows in blocks, one for each graph of a batch, of which every graph has the same room: rows that it does not
    need are empty, and between the elements of two graphs may be some that are of no row. On a GPU alone.

    Every shape is known beforehand, so that a CUDA graph can be replayed with other graphs; nothing is sorted.

    Arguments:
        numbers: 0, 1, 2, …: of each row.
        starts, ends: The bounds of each row, ``[graphs, rows]``.
        col: The row of x that each element is, ``[graphs · elements]``.
    """

    def __init__(self, numbers: Tensor, starts: Tensor, ends: Tensor, col: Tensor) -> None:
        super().__init__(starts.reshape(-1), col, short=True)
        self.__dict__.update(numbers=numbers, starts=self.ptr, ends=ends.reshape(-1), graphs=starts.size(0))

    numbers: Tensor
    starts: Tensor
    ends: Tensor
    graphs: int

    @property
    def size(self) -> int:
        return self.starts.numel()

    @property
    def counts(self) -> Tensor:
        return self.ends - self.starts

    def bounds(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.starts[rows], self.ends[rows]

    @cached_property
    def lists(self) -> list[Listed]:
        every = Listed(self.numbers, self.starts, self.ends)
        return [every, Listed(*(part[:0] for part in every))]

    def sample(self, step: int) -> tuple[Tensor, Tensor]:
        """As many elements as every step-th of all would be, the same share of each graph's from all over it."""
        known = self.__dict__.setdefault("samples", {})
        if step not in known:
            assert self.col is not None
            count, device = -(-self.col.numel() // step), self.col.device
            each = -(-count // self.graphs)
            first, ends = self.starts.view(self.graphs, -1)[:, :1], self.ends.view(self.graphs, -1)
            shares = (torch.arange(each, device=device) + 0.5) / each
            places = first + ((ends[:, -1:] - first) * shares).long()
            rows = torch.searchsorted(ends, places, right=True).clamp_(max=ends.size(1) - 1)  # a graph may have none
            rows = rows + torch.arange(self.graphs, device=device)[:, None] * ends.size(1)
            known[step] = self.col[places.t().reshape(-1)[:count]], rows.t().reshape(-1)[:count]
        return known[step]  # type: ignore[no-any-return]


class Assured(NamedTuple):
    """What is known of the edges in some columns of an edge_index, by place and number of a row of them."""

    owner: weakref.ref[Tensor]
    version: int
    step: int
    facts: dict[tuple[int, int], tuple[int, bool]]
    """The number of nodes, and whether the row rises."""


_assured: dict[int, Assured] = {}


def assure(edge_index: Tensor, pieces: Iterable[tuple[int, int, int]]) -> None:
    """Vouches for edges, so that their rows are found without a look at them, for which a GPU would be waited for.

    Arguments:
        edge_index: Sources and targets of the edges of several batches.
        pieces: Of each batch its first column, how many it has, and its number of nodes. All ends must lie in
            0 … nodes − 1, targets rise, and no node have more than LONG edges in or out.
    """
    if edge_index.is_inference():  # see `_remembered`
        return
    (down, step), begin, facts = edge_index.stride(), int(edge_index.storage_offset()), {}
    for first, count, nodes in pieces:
        facts[begin + first * step, count] = nodes, False
        facts[begin + first * step + down, count] = nodes, True
    owner = weakref.ref(edge_index, partial(_forget, id(edge_index), _assured))
    _assured[id(edge_index)] = Assured(owner, edge_index._version, step, facts)


def _fact(index: Tensor, size: int) -> bool | None:
    """Whether an index that is known to lie in 0 … size − 1 is known to rise; None, if nothing is known."""
    base = index._base
    known = _assured.get(id(base))
    if (
        base is None
        or known is None
        or known.owner() is not base
        or known.version != base._version
        or index.stride() != (known.step,)
    ):
        return None
    nodes, rises = known.facts.get((int(index.storage_offset()), index.numel()), (size + 1, False))
    return rises if nodes <= size else None


# All layers of a network, and forward and backward, share one edge_index: what was found for it is kept with it.
_found: dict[int, tuple[weakref.ref[Tensor], dict[Any, Any]]] = {}


def csr_of_index(index: Tensor, size: int) -> CSR:
    """The rows of an index, sorted or not. Looks at its values, and so waits for the GPU, the first time only.

    >>> csr_of_index(torch.tensor([1, 0, 1]), 3)
    CSR(ptr=tensor([0, 1, 3, 3]), col=tensor([1, 0, 2]), edge=tensor([1, 0, 2]))
    """
    return _remembered((index,), ("index", size), lambda: _sort(index, size))  # type: ignore[no-any-return]


def csr_of_ptr(ptr: Tensor, elements: int) -> CSR:
    """The rows between given bounds, once these have been looked at."""
    return _remembered((ptr,), ("ptr", elements), lambda: _check_ptr(ptr, elements))  # type: ignore[no-any-return]


def csr_of_edges(source: Tensor, index: Tensor, nodes: int, size: int) -> CSR:
    """The rows of an index whose elements are those of x at `source`, each of which lies in 0 … nodes − 1.

    >>> csr_of_edges(torch.tensor([5, 6, 7]), torch.tensor([1, 0, 1]), 8, 2)
    CSR(ptr=tensor([0, 1, 3]), col=tensor([6, 5, 7]), edge=tensor([1, 0, 2]))
    """

    def make() -> CSR:
        _check_range(source, nodes, "source")
        rows = csr_of_index(index, size)
        # A copy: what is remembered must not keep alive the tensor with whose end it is forgotten.
        found = CSR(rows.ptr, source.clone() if rows.edge is None else source[rows.edge], rows.edge, rows.short)
        found.__dict__.update(lists=rows.lists) if source.is_cuda else None  # it has the same rows
        return found

    return _remembered((source, index), ("edges", nodes, size), make)  # type: ignore[no-any-return]


def supply(edge_index: Tensor, nodes: int, rows: CSR, transposed: CSR) -> None:
    """The rows of these edges, by target and by source, from someone who knows them. They are not looked at.

    Where the rows hold fewer edges than there are, the others are left out, as those of a batch with room to spare.
    """
    source, target = edge_index[0], edge_index[1]
    _remembered((source, target), ("edges", nodes, nodes), lambda: rows)
    _remembered((target, source), ("edges", nodes, nodes), lambda: transposed)


def extremes(index: Tensor) -> tuple[int, int]:
    """The least and the largest entry, found once: a look at all of them takes time, and wakes all threads."""
    return _remembered((index,), ("extremes",), lambda: tuple(int(v) for v in index.aminmax()))  # type: ignore[no-any-return]


def as_int64(index: Tensor) -> Tensor:
    """The index in int64, always the same tensor for the same index, so that what was found for it is found again."""
    if index.dtype == torch.int64:
        return index
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return index.long()
    return _remembered((index,), ("int64",), lambda: index.long())  # type: ignore[no-any-return]


def _remembered(tensors: tuple[Tensor, ...], what: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    key, last = what, tensors[-1]
    for tensor in tensors:
        # edge_index[1] is a new tensor each time, but a view of the same one.
        base = tensor._base
        last = tensor if base is None else base
        if last.is_inference():  # it has no version: a change of its values would go unseen
            return make()
        key = (*key, id(last), last._version, tensor.storage_offset(), tensor.shape, tensor.stride())
    entry = _found.get(id(last))
    if entry is None or entry[0]() is not last:  # an id may be used again, once its owner is gone
        entry = _found[id(last)] = weakref.ref(last, partial(_forget, id(last), _found)), {}
    known = entry[1]
    first = tensors[0] if tensors[0]._base is None else tensors[0]._base
    value, alive = known.get(key, (None, None))
    if alive is None or alive() is not first:
        if len(known) >= 16:
            known.clear()
        value = make()
        known[key] = value, weakref.ref(first)
    return value


def _forget(owner: int, found: dict[int, Any], _: Any) -> None:
    found.pop(owner, None)


def _sort(index: Tensor, size: int) -> CSR:
    if index.numel() == 0:
        return CSR(torch.zeros(size + 1, dtype=torch.long, device=index.device))
    fact = _fact(index, size)
    index = index.contiguous().long()
    if fact is None:
        low, high, rises = torch.stack([*index.aminmax(), (index.diff() >= 0).all().long()]).tolist()
        if low < 0 or high >= size:
            raise ValueError(f"index must lie in 0 … {size - 1} (dim_size={size}), got values from {low} to {high}")
    else:
        rises = fact
    order = None
    if not rises:
        index, order = index.sort(stable=True)
    ptr = torch.searchsorted(index, torch.arange(size + 1, device=index.device))
    return CSR(ptr, order, order, short=fact is not None)


def _check_range(index: Tensor, size: int, name: str) -> None:
    if index.numel() and _fact(index, size) is None:
        low, high = torch.stack(index.aminmax()).tolist()
        if low < 0 or high >= size:
            raise ValueError(f"{name} must lie in 0 … {size - 1}, got values from {low} to {high}")


def _check_ptr(ptr: Tensor, elements: int) -> CSR:
    ptr = ptr.contiguous().long()
    first, last, lowest = torch.stack([ptr[0], ptr[-1], ptr.diff().min() if ptr.numel() > 1 else ptr[0]]).tolist()
    if first != 0 or last != elements or lowest < 0:
        raise ValueError(
            f"ptr must rise from 0 to the number of elements, {elements}, got values from {first} to {last}"
            + (" that fall in between" if lowest < 0 else "")
        )
    return CSR(ptr.clone())  # see `csr_of_edges`
