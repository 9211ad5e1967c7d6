"""The two protocols: the paper's, and that of the benchmark's leaderboard; and one for choices made beforehand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...data import GraphSet, load

__all__ = ["CITATION", "DATASETS", "IGNORED", "PROTOCOLS", "SBM", "Protocol", "Splits", "needed", "splits"]

SBM = ("pattern", "cluster")
SUPERPIXELS = ("mnist", "cifar10")
CITATION = ("cora", "citeseer", "pubmed")
DATASETS = (*SBM, *SUPERPIXELS, *CITATION)

IGNORED = -100
"""The class of a node that does not count, as in `torch.nn.functional.cross_entropy`."""


@dataclass(frozen=True)
class Protocol:
    """How a network is trained and what is reported."""

    about: str
    batch_size: int
    schedule: str = "constant"
    """Of the learning rate: `"constant"`, or `"cosine"`: down to 0 with the last step."""
    tuned: bool = False
    """Whether the official validation split stands for the graphs that are held out for the test."""
    chosen: bool = False
    """Whether the epoch that counts is the one that is best on the validation split."""
    balanced: bool = False
    """Whether on PATTERN and CLUSTER classes are weighted in the loss, and accuracy is the mean of their recalls."""
    positions: bool = False
    """Whether the superpixels' positions are features."""
    norm: bool = False
    residual: bool = False


PROTOCOLS = {
    "paper": Protocol(
        "x alone; every tenth graph of the training split is held out; plain accuracy; maximum of the mean curve", 32
    ),
    "standard": Protocol(
        "official splits, the epoch chosen on validation; class-balanced accuracy on PATTERN and CLUSTER; positions as "
        "features on MNIST and CIFAR10; BatchNorm and residual connections; learning rate along a cosine",
        64,
        "cosine",
        chosen=True,
        balanced=True,
        positions=True,
        norm=True,
        residual=True,
    ),
    "tuning": Protocol(
        "the paper's, but tested on the official validation split: for choices that are made before the test is seen",
        32,
        tuned=True,
    ),
}


class Splits(NamedTuple):
    train: GraphSet
    test: GraphSet
    val: GraphSet | None = None


def needed(protocol: str) -> tuple[str, ...]:
    """The splits of a data set that `splits` loads."""
    if PROTOCOLS[protocol].chosen:
        return ("train", "test", "val")
    return ("train", "val") if PROTOCOLS[protocol].tuned else ("train",)


def splits(dataset: str, protocol: str, share: float = 1.0, source: str = "made") -> Splits:
    """The graphs to train on, those to test on and, where an epoch is chosen, those to choose it on.

    `paper`: of the training split the graphs 0, 10, 20, … are for the test; of a citation network the nodes
    0, 10, 20, …, as the authors' code holds a tenth of the nodes out, and not those of the Planetoid masks. `tuning`:
    the same graphs to train on, and the validation split for the test.
    With a `share`, every 1/share-th of the training graphs is taken; those of the test stay the same.
    """
    if dataset in CITATION:
        return _nodes(load(dataset, source=source), PROTOCOLS[protocol].chosen)
    train = load(dataset, "train", source=source)
    if PROTOCOLS[protocol].chosen:
        test, val = load(dataset, "test", source=source), load(dataset, "val", source=source)
    else:
        graphs = torch.arange(len(train))
        held_out = None if PROTOCOLS[protocol].tuned else train.select(graphs[graphs % 10 == 0])
        train, val = train.select(graphs[graphs % 10 != 0]), None
        test = load(dataset, "val", source=source) if held_out is None else held_out
    if share < 1:
        # Evenly over the set: PATTERN is in the order of its patterns.
        count = max(1, round(share * len(train)))
        train = train.select((torch.arange(count) * len(train)) // count)
    return Splits(train, test, val)


def _nodes(graph: GraphSet, official: bool) -> Splits:
    """Nodes that are not of a split keep their features and edges, and have no class."""
    held_out = torch.arange(len(graph.y)) % 10 == 0
    masks = graph.masks if official else {"train": ~held_out, "test": held_out}
    if masks is None:
        raise ValueError(f"{graph.name} comes without masks for its nodes")
    parts = {name: replace(graph, y=graph.y.where(mask, IGNORED), masks=None) for name, mask in masks.items()}
    return Splits(parts["train"], parts["test"], parts.get("val"))
