"""The graphs that `fmean bench` measures on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["CASES", "FEATURES", "WORKLOADS", "Case", "Data", "degrees_of_power_law", "draw"]

FEATURES = 64
BLOCK = 118  # nodes of one graph of CLUSTER, on average


@dataclass(frozen=True)
class Case:
    """What is measured side by side: one graph, and one level.

    Level "aggregation" is agg(x, index) of messages x, ``[edges, 64]``, with a sorted index; of several `layers` with
    an unsorted one, new in every repetition and shared by the layers, as in a network that sees a new batch.
    Level "layer" is GraphConv(64, 64) of nodes, ``[nodes, 64]``, with the edges in no order.
    """

    workload: str
    level: str
    nodes: int
    edges: int
    kind: str = "uniform"
    layers: int = 1
    methods: tuple[str, ...] = ()  # all, if empty
    cuda_only: bool = False
    whole: bool = False
    """Whether it is small enough to be the same everywhere."""

    @property
    def name(self) -> str:
        return self.workload.split(",")[0]

    def divided(self, by: int) -> Case:
        return self if self.whole else replace(self, nodes=self.nodes // by, edges=self.edges // by)


CASES = (  # What is said of speed first hangs on the first ones: a run that is stopped has them.
    Case("paper", "aggregation", 72_000, 578_000),
    Case("paper", "layer", 72_000, 578_000),
    Case(
        "paper, unsorted, 4 layers",
        "aggregation",
        72_000,
        578_000,
        layers=4,
        methods=("pyg-sum", "pyg-softmax", "fmean-sinh", "fmean-mlp"),
    ),
    Case(
        "products",
        "layer",
        2_449_029,
        61_859_140,
        methods=("pyg-sum", "fmean-sinh", "fmean-mlp"),
        cuda_only=True,
    ),
    Case("power-law", "aggregation", 200_000, 6_000_000, "power-law"),
    Case("power-law", "layer", 200_000, 6_000_000, "power-law"),
    Case("cluster", "aggregation", 118_000, 6_000_000, "blocks"),
    Case("cluster", "layer", 118_000, 6_000_000, "blocks"),
    # The size of 32 molecules with 25 atoms and 27 bonds each: what a call costs beside its arithmetic.
    Case("molecules", "aggregation", 800, 1_728, whole=True),
    Case("molecules", "layer", 800, 1_728, whole=True),
)
WORKLOADS = tuple(dict.fromkeys(case.name for case in CASES))


@dataclass(frozen=True)
class Data:
    """x ``[edges or nodes, 64]``, the index ``[edges]`` or edge_index ``[2, edges]``, the gradient of the result."""

    x: Tensor
    index: Tensor
    grad: Tensor


def draw(case: Case, device: torch.device) -> Data:
    generator = torch.Generator(device).manual_seed(0)
    if case.kind == "power-law":  # the number of edges follows from the degrees
        degrees = degrees_of_power_law(case.nodes).to(device)
        degrees = degrees[torch.randperm(case.nodes, device=device, generator=generator)]
        target = torch.arange(case.nodes, device=device).repeat_interleave(degrees)
        target = target[torch.randperm(target.numel(), device=device, generator=generator)]
    else:
        target = torch.randint(case.nodes, (case.edges,), device=device, generator=generator)
    grad = torch.randn(case.nodes, FEATURES, device=device, generator=generator)
    if case.level == "aggregation":
        index = target if case.layers > 1 else target.sort()[0]
    elif case.kind == "blocks":  # a batch of graphs: no edge leaves its block
        source = target - target % BLOCK + torch.randint(BLOCK, target.shape, device=device, generator=generator)
        index = torch.stack([source.clamp_max(case.nodes - 1), target])
    else:
        index = torch.stack([torch.randint(case.nodes, target.shape, device=device, generator=generator), target])
    rows = target.numel() if case.level == "aggregation" else case.nodes
    return Data(torch.randn(rows, FEATURES, device=device, generator=generator), index, grad)


def degrees_of_power_law(nodes: int, exponent: float = 1.83) -> Tensor:
    """The quantiles of P(d) ∝ d^(−exponent) on 1 … nodes/2; of 200,000 nodes about 6,000,000 edges.

    >>> d = degrees_of_power_law(200_000)
    >>> d.min().item(), d.median().item(), d.max().item(), d.sum().item()
    (1, 2, 95905, 5849402)
    """
    u = (torch.arange(nodes, dtype=torch.float64) + 0.5) / nodes
    tail = (nodes / 2) ** (1 - exponent)
    d: Tensor = (1 - u * (1 - tail)) ** (1 / (1 - exponent))
    return d.long()
