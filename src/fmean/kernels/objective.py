from __future__ import annotations

from typing import NamedTuple

__all__ = ["Objective"]


class Objective(NamedTuple):
    """The paper's inversion objective, as the kernels of backward add it to the gradients of the parameters:
    weight · Σ|∂L/∂y| · E[(|f⁻¹(f(v))| − |v|)²], over every step-th element. See functions/inversion.py."""

    weight: float
    step: int
    numbers: int
    """How many the mean is taken over, for one f."""
