"""Batches of graphs, cut from long tensors where they lie."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..kernels.csr import LONG, assure
from .graphs import GraphSet, spread, starts

__all__ = ["Batch", "Loader"]

AT_ONCE = 2**18  # edges: what fits into a CPU's caches
AT_ONCE_ON_GPU = 2**22  # few calls, each of them large
WAITED_FOR = ("cuda",)  # where a kernel's own look at the edges of every batch costs more than one look at all of them


class Batch(NamedTuple):
    """Some graphs as one: n nodes and e edges in all.

    Arguments:
        x: Node features [n, F].
        edge_index: Source and target of every edge [2, e], int64, in order of target.
        y: Classes of the nodes [n], or of the graphs.
        batch: Which graph each node belongs to [n].
        ptr: Where each graph's nodes begin [graphs + 1].
        pos: Positions [n, 2], or None.
        graphs: How many there are.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    batch: Tensor
    ptr: Tensor
    pos: Tensor | None
    graphs: int


class Loader:
    """Batches of a `GraphSet`, as PyG's `DataLoader` makes them of a list of `Data`, made on the graphs' own device.

    The graphs of several batches are gathered by one piece of index arithmetic, and each batch is a view of the result;
    all sizes are known on the host, so a GPU is not waited for after the first look at the set, which also tells the
    kernels of `fmean` what they would else have to look for in each batch. The order depends on seed and epoch alone,
    so that training that is stopped can go on with `epoch(number)`.

    Arguments:
        graphs: The data set.
        batch_size: Graphs of a batch.
        shuffle: Whether each epoch has an order of its own.
        seed: Of that order.
        drop_last: Whether to leave out the last batch if it is smaller.

    >>> from fmean.data.sbm import cluster
    >>> loader = Loader(cluster("val", graphs=10), batch_size=4, shuffle=True)
    >>> [batch.graphs for batch in loader.epoch(0)]
    [4, 4, 2]
    """

    def __init__(
        self, graphs: GraphSet, batch_size: int, shuffle: bool = False, seed: int = 0, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        self.graphs, self.batch_size, self.shuffle, self.seed = graphs, batch_size, shuffle, seed
        self.used = len(graphs) // batch_size * batch_size if drop_last else len(graphs)
        self.next = 0
        self._nodes, self._edges = graphs.node_ptr.diff(), graphs.edge_ptr.diff()
        self._host_nodes, self._host_edges = self._nodes.cpu(), self._edges.cpu()
        self._pairs = graphs.edge_index.t().contiguous()  # a copy only if they do not lie so: see `GraphSet`
        edges = batch_size * graphs.edge_index.shape[1] // max(1, len(graphs))  # of a batch, on average
        at_once = AT_ONCE_ON_GPU if graphs.device.type == "cuda" else AT_ONCE
        self._orderly = graphs.device.type in WAITED_FOR and _orderly(graphs)
        self._at_once = batch_size * max(1, at_once // max(1, edges))

    def __len__(self) -> int:
        return -(-self.used // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch."""
        self.next += 1
        return self.epoch(self.next - 1)

    def order(self, number: int) -> Tensor:
        """The graphs in the order of an epoch."""
        if not self.shuffle:
            return torch.arange(self.used)
        return torch.from_numpy(np.random.default_rng([self.seed, number]).permutation(len(self.graphs))[: self.used])

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of an epoch."""
        order = self.order(number)
        on_device = order.to(self.graphs.device, non_blocking=True)
        for first in range(0, self.used, self._at_once):
            some = slice(first, first + self._at_once)
            yield from self._batches(order[some], on_device[some])

    def _batches(self, order: Tensor, graphs: Tensor) -> Iterator[Batch]:
        """Some graphs, given on the host and on the device, as batches."""
        data, size = self.graphs, self.batch_size
        node_ends = starts(self._host_nodes[order]).tolist()
        edge_ends = starts(self._host_edges[order]).tolist()

        ptr, edge_ptr = starts(self._nodes[graphs]), starts(self._edges[graphs])
        nodes = spread(data.node_ptr[graphs], ptr[:-1], node_ends[-1], slope=1)
        edges = spread(data.edge_ptr[graphs], edge_ptr[:-1], edge_ends[-1], slope=1)
        place = torch.arange(len(graphs), device=graphs.device)
        batch = spread(place % size, ptr[:-1], node_ends[-1])
        before = ptr[:-1] - ptr[place - place % size]  # nodes of the same batch before each graph
        most = max(b - a for a, b in pairwise([*node_ends[::size], node_ends[-1]]))
        if self._pairs.dtype == torch.int16 and most <= 2**16:
            shift = spread(before * 0x10001, edge_ptr[:-1], edge_ends[-1])
            edge_index = _shifted_at_once(self._pairs.view(torch.int32)[:, 0].index_select(0, edges), shift)
        else:
            shift = spread(before, edge_ptr[:-1], edge_ends[-1])
            edge_index = self._pairs.index_select(0, edges).t() + shift
        x = _rows(data.x, nodes)
        y = data.y.index_select(0, nodes if data.task == "node" else graphs)
        pos = None if data.pos is None else _rows(data.pos, nodes)

        # Cut by torch, which takes half the time of slices
        ends = [min(first + size, len(graphs)) for first in range(0, len(graphs), size)]
        counts = [end - first for first, end in pairwise([0, *ends])]
        n = [node_ends[end] - node_ends[first] for first, end in pairwise([0, *ends])]
        e = [edge_ends[end] - edge_ends[first] for first, end in pairwise([0, *ends])]
        if self._orderly:
            assure(edge_index, zip([edge_ends[first] for first in (0, *ends)], e, n, strict=False))
        rows = torch.arange(len(ends), device=graphs.device)[:, None] * size
        places = (rows + torch.arange(size + 1, device=graphs.device)).clamp_(max=len(graphs))
        ptrs = list(ptr[places] - ptr[rows])
        ptrs[-1] = ptrs[-1][: counts[-1] + 1]
        yield from map(
            Batch,
            x.split_with_sizes(n),
            edge_index.split_with_sizes(e, 1),
            y.split_with_sizes(n if data.task == "node" else counts),
            batch.split_with_sizes(n),
            ptrs,
            repeat(None) if pos is None else pos.split_with_sizes(n),
            counts,
        )


def _orderly(graphs: GraphSet) -> bool:
    """Whether all edges lie within their graphs, in order of target, and no node has more than LONG in or out."""
    node_ptr, edge_ptr = graphs.node_ptr.tolist(), graphs.edge_ptr.tolist()
    some = max(1, AT_ONCE_ON_GPU * len(graphs) // max(1, edge_ptr[-1]))  # graphs at a time: memory is shared by runs
    good = []
    for first in range(0, len(graphs), some):
        end = min(first + some, len(graphs))
        edges, nodes = edge_ptr[end] - edge_ptr[first], node_ptr[end] - node_ptr[first]
        if edges:
            begin = graphs.edge_ptr[first:end] - edge_ptr[first]
            before = spread(graphs.node_ptr[first:end] - node_ptr[first], begin, edges)
            room = spread(graphs.node_ptr[first : end + 1].diff(), begin, edges)
            ends = graphs.edge_index[:, edge_ptr[first] : edge_ptr[end]].long()
            good.append(((ends >= 0) & (ends < room)).all())
            ends = (ends + before).clamp_(0, nodes - 1)  # or a GPU would stop at one that is outside
            good.append((ends[1].diff() >= 0).all())
            good += [before.new_zeros(nodes).scatter_add_(0, row, torch.ones_like(row)).max() <= LONG for row in ends]
    return not good or bool(torch.stack(good).all())


def _shifted_at_once(pair: Tensor, shift: Tensor) -> Tensor:
    """Pairs of int16 [e], each as one int32, plus shifts [e], each twice in one number, as int64 [2, e].

    Mixing types is slow on a CPU: this is three times faster than int16 + int64 for source and target.
    """
    edge_index = torch.empty(2, len(pair), dtype=torch.int64, device=pair.device)
    low, high = edge_index if sys.byteorder == "little" else edge_index.unbind()[::-1]
    high.copy_(pair).add_(shift)
    torch.bitwise_and(high, 0xFFFF, out=low)
    high >>= 16
    return edge_index


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """`values[index]` of a matrix. On a CPU, rows as short as a number are gathered several times faster as numbers."""
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(values.shape[1] * values.itemsize)
    if word is None or not values.is_contiguous():
        return values.index_select(0, index)
    return values.view(word)[:, 0].index_select(0, index)[:, None].view(values.dtype)
