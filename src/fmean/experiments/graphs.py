"""The random graphs of the paper's regression experiments."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Neighbourhoods", "random_neighbourhoods"]


@dataclass(frozen=True)
class Neighbourhoods:
    """The sets {x_j : j ∈ N(i)} of all nodes i of a batch of graphs."""

    x: Tensor
    """The neighbours' features, ``[edges, d]``."""
    index: Tensor
    """The node i that each belongs to, sorted, ``[edges]``."""
    nodes: int
    """The number of sets."""


def random_neighbourhoods(
    graphs: int, d: int, generator: torch.Generator, nodes: int = 8, density: float = 0.3
) -> Neighbourhoods:
    """Symmetric graphs without self-loops, |E|/|V|² = density on average, features x ~ N(0, I_d).

    A node left alone gets one neighbour at random, since the aggregators are not defined on an empty set.

    >>> sets = random_neighbourhoods(2, 6, torch.Generator().manual_seed(0))
    >>> sets.x.shape[1], sets.nodes, sets.index.unique().numel()
    (6, 16, 16)
    """
    p = density * nodes / (nodes - 1)
    device = generator.device
    adjacency = (torch.rand(graphs, nodes, nodes, generator=generator, device=device) < p).triu(1)
    adjacency = adjacency | adjacency.mT
    step = torch.randint(1, nodes, (graphs, nodes), generator=generator, device=device)
    other = (torch.arange(nodes, device=device) + step) % nodes  # never the node itself
    rescue = torch.zeros_like(adjacency).scatter_(2, other.unsqueeze(-1), ~adjacency.any(2, keepdim=True))
    adjacency = adjacency | rescue | rescue.mT

    features = torch.randn(graphs, nodes, d, generator=generator, device=device)
    graph, i, j = adjacency.nonzero(as_tuple=True)
    return Neighbourhoods(features[graph, j], graph * nodes + i, graphs * nodes)
