"""The f's of the standard aggregators, as formulas."""

from __future__ import annotations

import math

from .expression import Expression, absolute, either, exp, given, log, maximum, minimum, sqrt, where, wide
from .recipe import HUGE, P, Recipe, outside, within

__all__ = ["ExpRecipe", "IdentityRecipe", "LimitRecipe", "LogAbsRecipe", "PowerRecipe"]


class _Symbolic(Recipe):
    """Nothing of f is learned: p = α."""

    parameters, layout = 1, (1,)
    double = double_terms = True


class IdentityRecipe(_Symbolic):
    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [v]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        return exp((p[0] - 1) * log_n) * t[0]


class LogAbsRecipe(_Symbolic):
    TINY = 1.1754944e-38
    LOG_ZERO = -1e30

    def terms(self, v: Expression, p: P) -> list[Expression]:
        tiny = absolute(v) < self.TINY
        slope = where(tiny, 0, 1 / where(tiny, 1, v))
        return [given(maximum(log(absolute(wide(v))), self.LOG_ZERO), (v, slope))]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        s = exp((p[0] - 1) * log_n) * t[0]
        over = s > math.log(3.4028234663852886e38)
        return where(over, math.inf, exp(where(over, 0, s)))


class PowerRecipe(_Symbolic):
    """|x|ᵖ of any float32 lies within float64 for the p that `recipe` is asked for: no scale is needed."""

    def __init__(self, p: float) -> None:
        self.p = p

    def terms(self, v: Expression, p: P) -> list[Expression]:
        a = absolute(wide(v))
        zero = a.equals(0)
        safe = where(zero, 1, a)
        term = self._power(safe, a * a)
        term = where(zero, 0 if self.p > 0 else math.inf, term)
        slope = 2 * wide(v) if self.p == 2 else where(zero, 0, self.p * term / where(zero, 1, wide(v)))
        return [given(term, (v, slope))]

    def _power(self, a: Expression, square: Expression) -> Expression:
        if self.p in (1.0, 2.0, -1.0, -2.0):
            whole = square if abs(self.p) == 2 else a
            return whole if self.p > 0 else 1 / whole
        return exp(self.p * log(a))

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        # 0 with gradient 0, to α as well, where the sum is 0 (p > 0) or infinite (p < 0)
        none = t[0].equals(0) if self.p > 0 else t[0] > 1e300
        s = exp((p[0] - 1) * log_n) * where(none, 1, t[0])
        return where(none, 0, {2.0: sqrt(s), 1.0: s, -1.0: 1 / s}.get(self.p, exp(log(s) / self.p)))


class ExpRecipe(_Symbolic):
    scales_ = 1

    def __init__(self, p: float) -> None:
        self.p = p

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [exp(self.p * wide(v))]

    # Near log 1 = 0 the digits of a single small x are gone; its scaled form has them all, in the scale.
    def overflow(self, t: P) -> Expression:
        return outside(within(t[0], 1e-250, 1e250), either(t[0] < 1 - 1e-6, t[0] > 1 + 1e-6))

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        return [exp(self.p * wide(v) - h[0])]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        return (h[0] + (p[0] - 1) * log_n + log(t[0])) / self.p

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        return [maximum(minimum(maximum(self.p * low, self.p * high), HUGE), -HUGE)]


class LimitRecipe(Recipe):
    """max, min (of v) and max, min magnitude (of |v|): the maximum of ±v or ±|v|; α has no effect."""

    parameters, layout, reduction = 1, (1,), "max"

    def __init__(self, sign: float, magnitude: float) -> None:
        self.sign, self.magnitude = sign, bool(magnitude)

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [self.sign * (absolute(v) if self.magnitude else v)]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        return absolute(t[0]) if self.magnitude else self.sign * t[0]
