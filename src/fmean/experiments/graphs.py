"""The random graphs of the paper's regression experiments, and the 13 standard aggregators of their neighbourhoods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..standard import STANDARD

__all__ = ["Graphs", "random_graphs", "standard_targets"]


@dataclass(frozen=True)
class Graphs:
    """A batch of graphs, and the sets {x_j : j ∈ N(i)} of all their nodes i."""

    features: Tensor
    """x of every node, ``[nodes, d]``."""
    adjacency: Tensor
    """Whether j is a neighbour of i, ``[graphs, i, j]``."""

    @property
    def nodes(self) -> int:
        return self.features.size(0)

    @cached_property
    def edges(self) -> Tensor:
        """``[2, E]``: the neighbours j, then the nodes i that each belongs to, which are sorted."""
        _, size, _ = self.adjacency.shape
        graph, i, j = self.adjacency.nonzero(as_tuple=True)
        return torch.stack([graph * size + j, graph * size + i])

    @property
    def index(self) -> Tensor:
        return self.edges[1]

    @cached_property
    def x(self) -> Tensor:
        """The neighbours' features, ``[E, d]``."""
        return self.features[self.edges[0]]


def random_graphs(graphs: int, d: int, generator: torch.Generator, nodes: int = 8, density: float = 0.3) -> Graphs:
    """Symmetric graphs without self-loops, each edge there with probability `density`, features x ~ N(0, I_d).

    As in the authors' code, a graph with a lonely node is drawn again, since the aggregators are not defined on an
    empty set. With 8 nodes and 0.3 that leaves about half of them, and |E|/|V|² = 0.30.

    >>> sets = random_graphs(2, 6, torch.Generator().manual_seed(0))
    >>> sets.x.shape[1], sets.nodes, sets.index.unique().numel()
    (6, 16, 16)
    """
    device = generator.device
    above = torch.ones(nodes, nodes, dtype=torch.bool, device=device).triu(1)
    found: list[Tensor] = []
    while sum(map(len, found)) < graphs:
        drawn = (torch.rand(2 * graphs + 8, nodes, nodes, generator=generator, device=device) < density) & above
        drawn = drawn | drawn.mT
        found.append(drawn[drawn.any(2).all(1)])
    features = torch.randn(graphs * nodes, d, generator=generator, device=device)
    return Graphs(features, torch.cat(found)[:graphs])


def standard_targets(graphs: Graphs) -> Tensor:
    """All 13 standard aggregators of every neighbourhood, ``[nodes, d, 13]``, in the order of `STANDARD`.

    As `standard(name)` gives them one by one, but faster on these small sets: training asks for them at every step.

    >>> from fmean import standard
    >>> sets = random_graphs(9, 2, torch.Generator().manual_seed(0))
    >>> y = standard("harmonic_mean")(sets.x, sets.index, dim_size=sets.nodes)
    >>> torch.allclose(standard_targets(sets)[..., STANDARD.index("harmonic_mean")], y)
    True
    """
    # The graphs come last, as the one long dimension: [i, j, d, graphs].
    adjacency = graphs.adjacency.permute(1, 2, 0).unsqueeze(2)
    x = graphs.features.view(*graphs.adjacency.shape[:2], -1).permute(1, 2, 0).contiguous()
    a, neighbour = x.abs(), adjacency.to(x.dtype).contiguous()
    far = (1 / neighbour) - 1  # 0 for a neighbour, ∞ for others
    n = neighbour.sum(1)

    def total(terms: Tensor) -> Tensor:
        return (neighbour * terms).sum(1)

    safe = a.clamp_min(1e-30)  # of a feature that is 0, log and reciprocal times the 0 of no neighbour would be NaN
    sums, logs, squares = total(x), total(safe.log()), total(x * x)
    mean = sums / n
    deviation = x - mean.unsqueeze(1)
    targets = {
        "mean": mean,
        "sum": sums,
        "product": logs.exp(),
        "min_magnitude": (a + far).amin(1),
        "max_magnitude": (a - far).amax(1),
        "min": (x + far).amin(1),
        "max": (x - far).amax(1),
        "harmonic_mean": n / total(safe.reciprocal()),
        "geometric_mean": (logs / n).exp(),
        "root_mean_square": (squares / n).sqrt(),
        "euclidean_norm": squares.sqrt(),
        "standard_deviation": (total(deviation * deviation) / n).sqrt(),
        "log_sum_exp": total(x.exp()).log(),
    }
    stacked = torch.stack([targets[name] for name in STANDARD], 2)  # [i, d, 13, graphs]
    return stacked.flatten(0, 2).t().contiguous().view(graphs.nodes, x.size(1), len(STANDARD))
