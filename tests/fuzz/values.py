"""What the elements of a case may be, by name."""

from __future__ import annotations

import torch

__all__ = ["VALUES"]


def _sign(shape):
    return torch.randint(0, 2, shape) * 2.0 - 1


def _times(scale):
    return lambda rng, n, rest, index: torch.randn(n, *rest) * scale


def _set_scaled(rng, n, rest, index):
    """Sets on very different scales."""
    scale = 10 ** (torch.rand(n) * 12 - 6)
    if len(index) == n and n:
        scale = scale[index.clamp_max(n - 1)]
    return torch.randn(n, *rest) * scale.view(n, *[1] * len(rest))


# [n, *rest] values, by name: the first is as frequent as all the others.
VALUES = {
    "normal": _times(1.0),
    "small": _times(0.01),
    "tens": _times(10.0),
    "hundreds": _times(300.0),
    "wide": lambda rng, n, rest, index: _sign((n, *rest)) * 10 ** (torch.rand(n, *rest) * 12 - 6),
    "wide_positive": lambda rng, n, rest, index: 10 ** (torch.rand(n, *rest) * 12 - 6),
    "set_scaled": _set_scaled,
    "huge": _times(1e30),
    "tiny": _times(1e-30),
    "zeros": lambda rng, n, rest, index: torch.randn(n, *rest) * (torch.rand(n, *rest) > 0.3),
    "all_zero": _times(0.0),
    "equal": lambda rng, n, rest, index: torch.full((n, *rest), rng.choice([0.1, -0.7, 3.0, 1.0])),
    "offset": lambda rng, n, rest, index: 1000 + torch.randn(n, *rest),
    "whole": lambda rng, n, rest, index: torch.randint(-2, 3, (n, *rest)).float(),
    "positive": lambda rng, n, rest, index: torch.rand(n, *rest) + 0.01,
    "opposite": lambda rng, n, rest, index: _sign((n, *rest)) * rng.choice([0.5, 1.0, 40.0]),
}
