"""Batches in which every graph has the same room, so that all of them have the same shapes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..kernels import BlockCSR, supply
from .graphs import GraphSet, spread

__all__ = ["Block", "Blocks"]

AT_ONCE = 1024  # graphs, whose edges are sorted in int64


class Block(NamedTuple):
    """Some graphs as one, with P nodes and E edges of each; what a graph does not need are dummies.

    Arguments:
        x: Node features [graphs · P, F]; 0 of a dummy.
        edge_index: Source and target of every edge [2, graphs · E]. A dummy goes from a dummy node to itself.
        y: Classes of the nodes [graphs · P], or of the graphs; `ignored` of a dummy.
        real: Which nodes are no dummies [graphs, P].
        pos: Positions [graphs · P, 2], or None.
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    real: Tensor
    pos: Tensor | None


class Blocks:
    """A `GraphSet` from which batches are taken by number, in a few operations whose shapes are always the same.

    So a CUDA graph that holds them can be replayed for any other batch. On a GPU the kernels of `fmean` are told the
    rows of the batch, and never look at its dummies. Graph `len(graphs)` is one more, all of dummies.

    Arguments:
        graphs: The data set. Its edges are in order of target, and no node has more than 512 of them.
        ignored: The class of a dummy.

    >>> from fmean.data.sbm import cluster
    >>> blocks = Blocks(cluster("val", graphs=3))
    >>> blocks.batch(torch.tensor([2, 0])).real.sum(1) == blocks.graphs.node_ptr.diff()[[2, 0]]
    tensor([True, True])
    """

    def __init__(self, graphs: GraphSet, ignored: int = -100) -> None:
        self.graphs, self.ignored = graphs, ignored
        nodes, edges = graphs.node_ptr.diff(), graphs.edge_ptr.diff()
        count, device = len(graphs), graphs.device
        self.nodes, self.edges = int(nodes.max()) + 1, max(1, int(edges.max()))
        place = _places(graphs.node_ptr, self.nodes)
        self.x = _roomy(graphs.x, place, count, self.nodes, 0)
        self.pos = None if graphs.pos is None else _roomy(graphs.pos, place, count, self.nodes, 0)
        self.y = (
            _roomy(graphs.y, place, count, self.nodes, ignored)
            if graphs.task == "node"
            else torch.cat([graphs.y, graphs.y.new_full((1,), ignored)])
        )
        self.count = torch.cat([nodes, nodes.new_zeros(1)])
        place = _places(graphs.edge_ptr, self.edges)
        pairs = [_roomy(end, place, count, self.edges, self.nodes - 1) for end in graphs.edge_index]
        self.pairs = torch.stack(pairs)  # [2, graphs + 1, E]
        self.bounds = _bounds(self.pairs[1], self.nodes)
        # By source: the same sets, unless an edge has no edge back.
        sources, targets = self._by_source()
        self.targets = None if torch.equal(targets, self.pairs[0]) else targets
        self.bounds_by_source = None if self.targets is None else _bounds(sources, self.nodes)
        self.inside = torch.arange(self.nodes, device=device)
        self.known: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def _by_source(self) -> tuple[Tensor, Tensor]:
        """Sources and targets of all edges, in order of source within each graph."""
        sources, targets = torch.empty_like(self.pairs).unbind()
        for first in range(0, len(self.count), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            order = (self.pairs[0, part].long() * self.nodes + self.pairs[1, part]).argsort(1)
            for end, by_source in zip(self.pairs, (sources, targets), strict=True):
                by_source[part] = end[part].gather(1, order)
        return sources, targets

    def batch(self, which: Tensor) -> Block:
        """The graphs of these numbers."""
        nodes_before, _, _ = self._before(len(which))
        edge_index = torch.add(self.pairs.index_select(1, which), nodes_before).view(2, -1)
        if which.is_cuda:
            supply(edge_index, len(which) * self.nodes, *self.rows(which, edge_index))
        return Block(
            self.x.index_select(0, which).flatten(0, 1),
            edge_index,
            self.y.index_select(0, which).reshape(-1),
            self.inside < self.count.index_select(0, which)[:, None],
            None if self.pos is None else self.pos.index_select(0, which).flatten(0, 1),
        )

    def rows(self, which: Tensor, edge_index: Tensor) -> tuple[BlockCSR, BlockCSR]:
        """The edges of a batch that are no dummies, by target and by source."""
        nodes_before, edges_before, numbers = self._before(len(which))
        starts, ends = torch.add(self.bounds.index_select(1, which), edges_before)
        rows = BlockCSR(numbers, starts, ends, edge_index[0])
        if self.targets is None or self.bounds_by_source is None:
            return rows, rows
        targets = torch.add(self.targets.index_select(0, which), nodes_before).view(-1)
        starts, ends = torch.add(self.bounds_by_source.index_select(1, which), edges_before)
        return rows, BlockCSR(numbers, starts, ends, targets)

    def _before(self, graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        """How many nodes, and edges, are before each of so many graphs, ``[graphs, 1]``; the numbers of the nodes."""
        if graphs not in self.known:
            graph = torch.arange(graphs, device=self.count.device)[:, None]
            numbers = torch.arange(graphs * self.nodes, device=self.count.device)
            self.known[graphs] = graph * self.nodes, graph * self.edges, numbers
        return self.known[graphs]


def _places(ptr: Tensor, room: int) -> Tensor:
    """Where each of many things goes, if each graph has room for so many."""
    first = torch.arange(len(ptr) - 1, device=ptr.device) * room
    return spread(first, ptr[:-1], int(ptr[-1]), slope=1)


def _roomy(values: Tensor, place: Tensor, graphs: int, room: int, rest: int) -> Tensor:
    """[n, ...] → [graphs + 1, room, ...]."""
    roomy = values.new_full(((graphs + 1) * room, *values.shape[1:]), rest)
    return roomy.index_copy_(0, place, values).view(graphs + 1, room, *values.shape[1:])


def _bounds(ends: Tensor, nodes: int) -> Tensor:
    """Where the edges of each node begin and end within its graph, [2, graphs, nodes]; of dummies nowhere.

    The last node of a graph is always a dummy, and all dummies among the edges are its own.
    """
    node = torch.arange(nodes, device=ends.device, dtype=ends.dtype).expand(len(ends), -1).contiguous()
    ends = ends.contiguous()
    starts = torch.searchsorted(ends, node, out_int32=True)
    stops = torch.searchsorted(ends, node, right=True, out_int32=True)
    stops[:, -1] = starts[:, -1]
    return torch.stack([starts, stops])
