"""PATTERN and CLUSTER: random graphs of blocks (stochastic block models), drawn anew from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from .graphs import GraphSet, starts, targets

__all__ = ["cluster", "pattern"]

LEAST, MOST = 5, 34  # nodes of a block, or of a pattern
SPLITS = ("train", "val", "test")
PATTERNS = 100
AT_ONCE = 100  # graphs: the chances and draws of all their pairs of nodes take some 50 MB

Numbers = npt.NDArray[np.int64]


def pattern(split: str = "train", seed: int = 0, graphs: int | None = None) -> GraphSet:
    """PATTERN: which nodes belong to the pattern that was put into the graph?

    There are 100 patterns of 5 to 34 nodes, with edge probability 0.5 and features from {0, 1, 2}; each is in 100
    training graphs that follow one another, in 20 of validation and 20 of test. Around it 5 blocks (p = 0.5,
    q = 0.35) with random features; pattern and other nodes are joined with probability 0.5.

    Arguments:
        split: `"train"` (10,000 graphs), `"val"` (2,000) or `"test"` (2,000).
        seed: Of patterns and graphs.
        graphs: Only so many. They are drawn for themselves, and need not be the first ones of the whole split.

    >>> pattern("val", graphs=40)
    GraphSet('pattern', graphs=40, nodes=..., edges=..., features=3, classes=2, task='node')
    """
    wanted, alike = (
        _count(split, {"train": 10_000, "val": 2_000, "test": 2_000}, graphs),
        100 if split == "train" else 20,
    )
    drawn, blocks = _Drawn(), 5
    for number, first in enumerate(range(0, wanted, alike)):
        once = np.random.default_rng([seed, 0, number])  # the same in every split
        size = int(once.integers(LEAST, MOST + 1))
        inner = np.triu(once.random((size, size)) < 0.5, 1)
        inner_feature = once.integers(0, 3, size)

        # Roles: 0..4 a block's nodes, 5..38 the pattern's, each its own, and after them no node at all.
        chance = np.zeros((blocks + MOST + 1, blocks + MOST + 1), np.float32)
        chance[:blocks, :blocks] = _blocks(blocks, 0.5, 0.35)
        chance[:blocks, blocks:-1] = chance[blocks:-1, :blocks] = 0.5
        chance[blocks : blocks + size, blocks : blocks + size] = inner | inner.T

        rng = np.random.default_rng([seed, 1, SPLITS.index(split), number])
        ends, role = _roles(rng, min(alike, wanted - first), blocks, extra=size)
        place = np.arange(role.shape[1]) - ends[:, -1:]
        is_pattern = (place >= 0) & (place < size)
        role = np.where(is_pattern, blocks + place, np.where(place < 0, role, blocks + MOST))
        feature = rng.integers(0, 3, role.shape)
        feature[is_pattern] = np.broadcast_to(inner_feature, (len(role), size)).ravel()
        drawn.add(rng, role, chance, feature, is_pattern.astype(np.int64))
    return drawn.graphs("pattern", features=3, classes=2)


def cluster(split: str = "train", seed: int = 0, graphs: int | None = None) -> GraphSet:
    """CLUSTER: which of 6 blocks (p = 0.55, q = 0.25) does each node belong to?

    One node of each block says so by its feature, 1 to 6; that of the others is 0.

    Arguments:
        split: `"train"` (10,000 graphs), `"val"` (1,000) or `"test"` (1,000).
        seed: Of the graphs.
        graphs: Only so many. They are drawn for themselves, and need not be the first ones of the whole split.

    >>> cluster("val", graphs=40)
    GraphSet('cluster', graphs=40, nodes=..., edges=..., features=7, classes=6, task='node')
    """
    wanted = _count(split, {"train": 10_000, "val": 1_000, "test": 1_000}, graphs)
    drawn, blocks = _Drawn(), 6
    chance = np.zeros((blocks + 1, blocks + 1), np.float32)
    chance[:blocks, :blocks] = _blocks(blocks, 0.55, 0.25)
    for number, first in enumerate(range(0, wanted, AT_ONCE)):
        rng = np.random.default_rng([seed, 2, SPLITS.index(split), number])
        ends, role = _roles(rng, min(AT_ONCE, wanted - first), blocks)
        feature = np.zeros_like(role)
        firsts = np.pad(ends[:, :-1], ((0, 0), (1, 0)))  # of each block; the nodes are put in random order later
        np.put_along_axis(feature, firsts, np.arange(1, blocks + 1)[None], 1)
        drawn.add(rng, role, chance, feature, role)
    return drawn.graphs("cluster", features=7, classes=6)


def _count(split: str, sizes: dict[str, int], graphs: int | None) -> int:
    if split not in sizes:
        raise ValueError(f"split is one of {', '.join(sizes)}, not {split!r}")
    if graphs is not None and not 1 <= graphs <= sizes[split]:
        raise ValueError(f"graphs is 1 to {sizes[split]} for split {split!r}, not {graphs}")
    return graphs or sizes[split]


def _blocks(blocks: int, p: float, q: float) -> npt.NDArray[np.float32]:
    return np.where(np.eye(blocks, dtype=bool), np.float32(p), np.float32(q))


def _roles(rng: np.random.Generator, graphs: int, blocks: int, extra: int = 0) -> tuple[Numbers, Numbers]:
    """Where each block ends [G, blocks], and each node's block [G, n]; `blocks` means after the last block.

    There are as many columns as the largest graph has nodes, with `extra` ones after its blocks.
    """
    ends = rng.integers(LEAST, MOST + 1, (graphs, blocks)).cumsum(1)
    role = (np.arange(ends[:, -1].max() + extra)[None, :, None] >= ends[:, None, :]).sum(-1)
    return ends, role


@dataclass
class _Drawn:
    """Graphs that have been drawn."""

    nodes: list[Numbers] = field(default_factory=list)
    feature: list[Numbers] = field(default_factory=list)
    label: list[Numbers] = field(default_factory=list)
    source: list[npt.NDArray[np.int16]] = field(default_factory=list)
    degree: list[npt.NDArray[np.int16]] = field(default_factory=list)

    def add(
        self,
        rng: np.random.Generator,
        role: Numbers,
        chance: npt.NDArray[np.float32],
        feature: Numbers,
        label: Numbers,
    ) -> None:
        """Puts the nodes in random order, and draws edges: i and j are joined with chance[role_i, role_j].

        Arguments:
            role: What each node is [G, n]; the last number that `chance` knows means no node.
            chance: The probability of an edge, by role.
            feature, label: Of the nodes [G, n].
        """
        n = role.shape[1]
        order = np.where(role < len(chance) - 1, rng.random(role.shape), 2.0).argsort(
            1
        )  # those that are none stay behind the rest
        role, feature, label = (np.take_along_axis(v, order, 1) for v in (role, feature, label))
        there = role < len(chance) - 1
        wanted = np.take_along_axis(chance[role], np.broadcast_to(role[:, None, :], (len(role), n, n)), 2)
        linked = rng.random(wanted.shape, np.float32) < wanted
        linked &= np.tri(n, k=-1, dtype=bool)
        linked |= linked.transpose(0, 2, 1).copy()
        self.nodes.append(there.sum(1))
        self.feature.append(feature[there])
        self.label.append(label[there])
        self.source.append((np.flatnonzero(linked) % n).astype(np.int16))  # rows are targets
        self.degree.append(linked.sum(2, dtype=np.int16)[there])

    def graphs(self, name: str, features: int, classes: int) -> GraphSet:
        node_ptr, degree = starts(_joined(self.nodes)), _joined(self.degree)
        edge_index = torch.empty(sum(map(len, self.source)), 2, dtype=torch.int16).t()
        edge_index[0] = _joined(self.source)
        edge_index[1] = targets(degree, node_ptr)
        return GraphSet(
            x=F.one_hot(_joined(self.feature), features).float(),
            edge_index=edge_index,
            y=_joined(self.label),
            node_ptr=node_ptr,
            edge_ptr=starts(degree)[node_ptr],
            task="node",
            classes=classes,
            name=name,
        )


def _joined(parts: list[npt.NDArray[np.generic]] | list[Numbers] | list[npt.NDArray[np.int16]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
