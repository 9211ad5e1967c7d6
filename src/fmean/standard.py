"""The 13 standard aggregators, as rows θ = ⟨f, α, β⟩ of the paper's table."""

from __future__ import annotations

from .functions import SYMBOLIC
from .genagg import GenAgg

__all__ = ["STANDARD", "standard"]

STANDARD: tuple[str, ...] = tuple(SYMBOLIC)
"""The names of the 13 standard aggregators, in the paper's order."""

_SUMS = {"sum", "product", "euclidean_norm", "log_sum_exp"}  # α = 1: they grow with n
_CENTRED = {"standard_deviation"}  # β = 1


def standard(name: str) -> GenAgg:
    """One of the 13 standard aggregators, as a GenAgg with nothing left to learn.

    Product, harmonic mean and geometric mean are those of the magnitudes |x|.

    Arguments:
        name: One of `STANDARD`.

    Example:
        >>> import torch
        >>> standard("harmonic_mean")(torch.tensor([[1.0], [2.0], [2.0]]))
        tensor([[1.5000]])
    """
    if name not in SYMBOLIC:
        raise ValueError(f"unknown standard aggregator {name!r}; the 13 are {', '.join(STANDARD)}")
    return GenAgg(name, float(name in _SUMS), float(name in _CENTRED), learn_alpha=False, learn_beta=False)
