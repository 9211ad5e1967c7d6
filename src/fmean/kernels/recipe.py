"""An f as formulas: the terms of its sum over a set, and what follows the sum.

y = finish( Σ terms(v) ),  v = x − β·μ
"""

from __future__ import annotations

from collections.abc import Sequence

from .expression import Expression, absolute, both, either, exp, given, log, maximum, sqrt, where

__all__ = ["HUGE", "LARGEST_EXPONENT", "P", "Recipe", "asinh", "log_magnitude", "outside", "two_sinh", "within"]

HUGE = 3e38
LARGEST_EXPONENT = 87.7  # e^88.7 is the largest float32

P = Sequence[Expression]


class Recipe:
    """f and f⁻¹ for the kernels, as formulas of the packed parameters p: those of f, then α."""

    parameters: int
    """How many numbers p holds, α included."""
    layout: tuple[int, ...]
    """How many of them each tensor holds, α the last."""
    terms_: int = 1
    """How many sums are taken."""
    scales_: int = 0
    """How many scales the sums have, for where terms overflow."""
    double = False
    """Whether sums are taken, and finished, in float64. (On a CPU, where `double_terms` are.)"""
    double_terms = False
    """Whether the terms are in float64 as well."""
    reduction = "sum"
    approximate = False
    """Whether f⁻¹ has to be pulled towards an inverse, by the objective on `around`."""

    def terms(self, v: Expression, p: P) -> list[Expression]:
        """The terms of an element v."""
        raise NotImplementedError

    def overflow(self, t: P) -> Expression:
        """Whether the sums show that terms have left the range, so that they must be taken at a scale."""
        raise NotImplementedError

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        """The terms at the scales h."""
        return self.terms(v, p)

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        """y = f⁻¹(n^(α−1) · …) from the sums t of the terms."""
        raise NotImplementedError

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        """The scales for a row with v from `low` to `high` and |v| from `least` on."""
        return []

    def around(self, v: Expression, p: P) -> Expression:
        """f⁻¹(f(v)), where that is not v or |v| by construction."""
        raise NotImplementedError


def asinh(a: Expression, t: Expression) -> Expression:
    """asinh(eᵗ·a); near 0 by its series, since the logarithm there loses the digits."""
    size = absolute(a)
    root = where(size > 1e15, size, sqrt(a * a + maximum(exp(-2 * t), 1e-30)))
    s = a * a
    near = a * (1 + s * (-1 / 6 + s * (3 / 40 + s * (-15 / 336 + s * (105 / 3456 + s * (-945 / 42240))))))
    far = where(a < 0, -1, 1) * (t + log(size + root))
    scaled = both(t > 0, size > 0) if t.op != "const" else None
    is_far = size > 0.25 if scaled is None else either(scaled, size > 0.25)
    return given(where(is_far, far, near), (a, 1 / root))


def two_sinh(u: Expression, t: Expression) -> Expression:
    """2·sinh(u)·e^(−t); near 0 by its series, since the two terms of the difference cancel there."""
    up, down, s = exp(u - t), exp(-u - t), u * u
    near = u * (2 + s * (1 / 3 + s * (1 / 60))) * exp(-t)
    return given(where(absolute(u) < 0.25, near, up - down), (u, up + down))


def log_magnitude(v: Expression, eps: float) -> Expression:
    """log √(v² + ε²); of a v whose square overflows, log|v|."""
    size = absolute(v)
    large = size > 1e15
    square = where(large, size, v * v + eps * eps)
    return given(where(large, 1, 0.5) * log(square), (v, where(large, where(v < 0, -1, 1), v) / square))


def within(t: Expression, low: float, high: float) -> Expression:
    return both(t > low, t < high)


def outside(*within: Expression) -> Expression:
    """1 unless all conditions hold; a NaN fulfils none."""
    all_ = within[0]
    for one in within[1:]:
        all_ = both(all_, one)
    return where(all_, 0, 1)
