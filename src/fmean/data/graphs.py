"""Many graphs as a few long tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.data import Data

__all__ = ["GraphSet", "from_data", "spread", "starts", "targets"]


def starts(lengths: Tensor) -> Tensor:
    """Where each of several runs begins, and where the last one ends: 0, l₀, l₀ + l₁, …

    >>> starts(torch.tensor([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return torch.nn.functional.pad(lengths.long().cumsum(0), (1, 0))


def spread(value: Tensor, start: Tensor, total: int, slope: int = 0) -> Tensor:
    """Long runs of numbers, written as their sum over steps: from place start_r on, value_r, value_r + slope, …

    `start` may name a place twice, then the run before it is empty. With `total`, a GPU need not be waited for.

    >>> spread(torch.tensor([7, 0]), torch.tensor([0, 2]), 5, slope=1)
    tensor([7, 8, 0, 1, 2])
    """
    steps = torch.full((total + 1,), slope, dtype=torch.int64, device=value.device)  # + 1: empty runs at the end
    ahead = value - slope * start
    steps.index_add_(0, start, ahead.diff(prepend=ahead.new_full((1,), slope)))
    return steps.cumsum_(0)[:total]


def targets(degree: Tensor, node_ptr: Tensor, dtype: torch.dtype = torch.int16) -> Tensor:
    """The target of every edge, numbered within its graph, from the nodes' in-degrees [N]: edges in order of target."""
    total = int(node_ptr[-1])
    local = spread(torch.zeros_like(node_ptr[1:]), node_ptr[:-1], total, slope=1)
    return torch.from_numpy(local.to(dtype).numpy().repeat(degree.numpy()))  # torch's would first make E int64 numbers


@dataclass(repr=False)
class GraphSet:
    """A data set of G graphs with N nodes and E edges in all, graph after graph.

    Arguments:
        x: Node features [N, F], float32.
        edge_index: Source and target of every edge [2, E], numbered within its graph. An integer type that is wide
            enough, usually int16: a quarter of int64's memory. Within each graph in order of target. Best a view
            `pairs.t()` of pairs [E, 2]: to gather an edge then touches memory once.
        y: Classes, int64: of the nodes [N], or of the graphs [G].
        node_ptr: Graph i has the nodes `node_ptr[i]` to `node_ptr[i + 1]`, [G + 1].
        edge_ptr: The same for edges, [G + 1].
        pos: Positions of the nodes [N, 2], or None.
        task: `"node"` or `"graph"`: what `y` is of.
        classes: How many classes there are.
        name: Of the data set.
        masks: Where one graph is both trained and tested on, its `"train"`, `"val"` and `"test"` nodes [N].
    """

    x: Tensor
    edge_index: Tensor
    y: Tensor
    node_ptr: Tensor
    edge_ptr: Tensor
    pos: Tensor | None = None
    task: str = "graph"
    classes: int = 2
    name: str = ""
    masks: dict[str, Tensor] | None = None

    def __post_init__(self) -> None:
        if self.task not in ("node", "graph"):
            raise ValueError(f"task is 'node' or 'graph', not {self.task!r}")
        wanted = len(self.x) if self.task == "node" else len(self)
        if len(self.y) != wanted:
            raise ValueError(f"a {self.task} task with {wanted} {self.task}s has as many y, not {len(self.y)}")
        if len(self.edge_ptr) != len(self.node_ptr):
            raise ValueError(f"node_ptr has {len(self.node_ptr)} entries, edge_ptr has {len(self.edge_ptr)}")

    def __len__(self) -> int:
        return len(self.node_ptr) - 1

    def __repr__(self) -> str:
        return (
            f"GraphSet({self.name!r}, graphs={len(self)}, nodes={len(self.x)}, edges={self.edge_index.shape[1]}, "
            f"features={self.x.shape[1]}, classes={self.classes}, task={self.task!r})"
        )

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: str | torch.device) -> GraphSet:
        """The same graphs on another device."""
        return replace(
            self,
            x=self.x.to(device),
            edge_index=self.edge_index.to(device),
            y=self.y.to(device),
            node_ptr=self.node_ptr.to(device),
            edge_ptr=self.edge_ptr.to(device),
            pos=None if self.pos is None else self.pos.to(device),
            masks=self.masks and {name: mask.to(device) for name, mask in self.masks.items()},
        )

    def select(self, graphs: Tensor) -> GraphSet:
        """Some of the graphs, in the order given; by number [K], or by a mask [G]."""
        if graphs.dtype == torch.bool:
            graphs = graphs.nonzero()[:, 0]
        graphs = graphs.to(self.device, torch.int64)
        nodes, node_ptr = _taken(self.node_ptr, graphs)
        edges, edge_ptr = _taken(self.edge_ptr, graphs)
        return replace(
            self,
            x=self.x[nodes],
            edge_index=self.edge_index.t()[edges].t(),
            y=self.y[nodes if self.task == "node" else graphs],
            node_ptr=node_ptr,
            edge_ptr=edge_ptr,
            pos=None if self.pos is None else self.pos[nodes],
            masks=self.masks and {name: mask[nodes] for name, mask in self.masks.items()},
        )

    def graph(self, i: int) -> Data:
        """Graph i as PyG has it."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"graph {i} of {len(self)}")
        i %= len(self)
        nodes = slice(int(self.node_ptr[i]), int(self.node_ptr[i + 1]))
        edges = slice(int(self.edge_ptr[i]), int(self.edge_ptr[i + 1]))
        more = {} if self.pos is None else {"pos": self.pos[nodes]}
        more |= {f"{name}_mask": mask[nodes] for name, mask in (self.masks or {}).items()}
        y = self.y[nodes] if self.task == "node" else self.y[i : i + 1]
        return Data(x=self.x[nodes], edge_index=self.edge_index[:, edges].long(), y=y, **more)


def _taken(ptr: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor]:
    """The rows that belong to some graphs, and where each graph begins among them."""
    new = starts(ptr.diff()[graphs])
    return spread(ptr[graphs], new[:-1], int(new[-1]), slope=1), new


def from_data(graphs: Iterable[Data], name: str, task: str, classes: int) -> GraphSet:
    """What PyG holds as many `Data`, as one `GraphSet`: its edges in order of target, else all as it was.

    >>> one = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([3]))
    >>> from_data([one, one], "twice", "graph", classes=4)
    GraphSet('twice', graphs=2, nodes=4, edges=4, features=1, classes=4, task='graph')
    """
    found = list(graphs)
    if not found:
        raise ValueError(f"{name} has no graphs")
    nodes = torch.tensor([one.num_nodes for one in found])
    number = torch.int16 if int(nodes.max()) < 2**15 else torch.int64
    pairs = [one.edge_index.t()[one.edge_index[1].argsort(stable=True)].to(number) for one in found]
    has_pos = getattr(found[0], "pos", None) is not None
    return GraphSet(
        x=torch.cat([one.x for one in found]).float(),
        edge_index=torch.cat(pairs).t(),
        y=torch.cat([one.y.reshape(-1) for one in found]).long(),
        node_ptr=starts(nodes),
        edge_ptr=starts(torch.tensor([one.edge_index.shape[1] for one in found])),
        pos=torch.cat([one.pos for one in found]).float() if has_pos else None,
        task=task,
        classes=classes,
        name=name,
    )
