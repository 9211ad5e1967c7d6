"""Data sets of a few small graphs under the names of the real ones."""

import torch

from fmean.data import GraphSet
from fmean.data.store import write

COUNTS = {"train": 40, "val": 6, "test": 8}
SHAPES = {"pattern": (3, 2, "node"), "cluster": (7, 6, "node"), "mnist": (1, 10, "graph"), "cifar10": (3, 10, "graph")}


def load(name, split="train"):
    features, classes, task = SHAPES[name]
    generator = torch.Generator().manual_seed(list(COUNTS).index(split))
    graphs, nodes = COUNTS[split], 6
    source_, target = torch.ones(nodes, nodes).fill_diagonal_(0).nonzero().T
    n = graphs * nodes
    x = torch.randn(n, features, generator=generator)
    per_node = (x[:, 0] > 0).long() * (classes - 1)  # can be learned
    return GraphSet(
        x=x,
        edge_index=torch.stack([target, source_]).repeat(1, graphs).to(torch.int16),
        y=per_node if task == "node" else torch.arange(graphs) % classes,
        node_ptr=torch.arange(graphs + 1) * nodes,
        edge_ptr=torch.arange(graphs + 1) * nodes * (nodes - 1),
        pos=torch.rand(n, 2, generator=generator) if task == "graph" else None,
        task=task,
        classes=classes,
        name=name,
    )


def citation():
    n = 60
    ring = torch.arange(n)
    edges = torch.stack([(ring + 1) % n, ring])
    part = ring // 20
    return GraphSet(
        x=torch.randn(n, 5, generator=torch.Generator().manual_seed(0)),
        edge_index=edges,
        y=ring % 3,
        node_ptr=torch.tensor([0, n]),
        edge_ptr=torch.tensor([0, n]),
        task="node",
        classes=3,
        name="cora",
        masks={name: part == i for i, name in enumerate(("train", "val", "test"))},
    )


def build(folder):
    """As `fmean data build` does, so that every process finds them that has the folder in FMEAN_CACHE."""
    for name in SHAPES:
        for split in COUNTS:
            write(load(name, split), folder / name / f"{split}.pt")
    write(citation(), folder / "cora/all.pt")
