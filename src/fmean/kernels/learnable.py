"""The f's that are learned, as formulas: `SinhLinear`, `Sinh`, `MLPAutoencoder`, `InvertibleNN`, and a `Mixture`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from .expression import (
    LOG_2,
    Expression,
    absolute,
    const,
    exp,
    exp2,
    given,
    log,
    log2,
    maximum,
    minimum,
    reciprocal,
    wide,
)
from .recipe import HUGE, LARGEST_EXPONENT, P, Recipe, asinh, log_magnitude, outside, two_sinh, within

__all__ = ["InvertibleRecipe", "MLPRecipe", "MixtureRecipe", "SinhLinearRecipe", "SinhRecipe"]


class SinhLinearRecipe(Recipe):
    """p = ρ c α. The sum of sinh is taken twice as large."""

    parameters, layout, scales_ = 3, (1, 1, 1), 1

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return self.scaled_terms(v, p, [const(0)])

    def overflow(self, t: P) -> Expression:
        return outside(self.safe(t[0]))

    def safe(self, t: Expression) -> Expression:
        return within(t, -1e30, 1e30)

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        return [two_sinh(exp(p[0]) * v + p[1], h[0])]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        return (asinh(exp((p[2] - 1) * log_n) * (0.5 * t[0]), h[0]) - p[1]) / exp(p[0])

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        rate = exp(p[0])
        return [_scale(maximum(absolute(rate * low + p[1]), absolute(rate * high + p[1])))]


LINEAR = SinhLinearRecipe()


class SinhRecipe(Recipe):
    """p = ρ₁ c₁ ρ₂ ρ₃ c₃ ω₁ ω₂ ω₃ α₁ α₂ α₃. The sums of sinh are taken twice as large."""

    parameters, terms_, scales_ = 11, 3, 3
    layout = (1, 1, 1, 1, 1, 3, 3)

    def __init__(self, eps: float) -> None:
        self.eps = eps

    def terms(self, v: Expression, p: P) -> list[Expression]:
        square = v * v + self.eps * self.eps
        size = given(log2(square), (v, (2 / LOG_2) * v * reciprocal(square)))  # log₂ of v² + ε²
        return [
            *LINEAR.terms(v, p),
            exp2(exp(p[2]) * 0.5 * size),
            two_sinh(exp(p[3]) * (LOG_2 / 2) * size + p[4], const(0)),
        ]

    def overflow(self, t: P) -> Expression:
        return outside(LINEAR.safe(t[0]), within(t[1], 1e-30, 1e30), within(t[2], -1e30, 1e30))

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        size = log_magnitude(v, self.eps)
        return [
            *LINEAR.scaled_terms(v, p, h),
            exp(exp(p[2]) * (size - h[1])),
            two_sinh(exp(p[3]) * size + p[4], h[2]),
        ]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        q, p3 = exp(p[2]), exp(p[3])
        y1 = LINEAR.finish(t, n, log_n, [*p[:2], p[8]], h)
        y2 = exp(h[1] + ((p[9] - 1) * log_n + log(t[1])) / q)
        y3 = exp(minimum((asinh(exp((p[10] - 1) * log_n) * (0.5 * t[2]), h[2]) - p[4]) / p3, LARGEST_EXPONENT))
        w = _softmax(p[5:8])
        return w[0] * y1 + w[1] * y2 + w[2] * y3

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        p3 = exp(p[3])
        most = log_magnitude(maximum(absolute(low), absolute(high)), self.eps)
        small = log_magnitude(least, self.eps)
        m3 = maximum(absolute(p3 * small + p[4]), absolute(p3 * most + p[4]))
        return [*LINEAR.scales(low, high, least, p), most, _scale(m3)]


def _softmax(omega: P) -> list[Expression]:
    k, top = range(len(omega)), omega[0]
    for o in omega[1:]:
        top = maximum(top, o)
    e = [exp(o - top) for o in omega]
    total = sum(e[1:], e[0])
    return [given(e[i] / total, *((omega[j], e[i] / total * (float(i == j) - e[j] / total)) for j in k)) for i in k]


def _scale(m: Expression) -> Expression:
    return maximum(minimum(m, HUGE) - 20, 0)


def _mish(z: Expression) -> Expression:
    """Mish(z·ln 2)/ln 2 = z·tanh(log(1 + 2ᶻ)) = z·w/(w + 2) with w = 2ᶻ(2ᶻ + 2)."""
    e = exp2(minimum(z, 60))  # beyond, the fraction is 1, and w must be finite
    w = e * (e + 2)
    r = reciprocal(w + 2)
    share = w * r  # not 1 − 2r, which has no digits left where z ≪ 0
    return given(z * share, (z, share + z * ((4 * LOG_2) * (e * r)) * ((e + 1) * r)))


def _linear(h: P, w: P, b: P) -> list[Expression]:
    """W·h + b, from b on: then each product is one instruction with its sum."""
    z = list(b)
    for o in range(len(z)):
        for j in range(len(h)):
            z[o] = w[o * len(h) + j] * h[j] + z[o]
    return z


def _layer(p: P, m: int, k: int) -> tuple[P, P]:
    """W and b of the layer from m to k that p begins with, (W b) row by row."""
    rows = [p[o * (m + 1) : (o + 1) * (m + 1)] for o in range(k)]
    return [one for row in rows for one in row[:-1]], [row[-1] for row in rows]


def _hidden(v: P, sizes: Sequence[int], p: P) -> list[Expression]:
    """Layers with Mish after each of them, over ln 2; p has the layers in turn.

    Processors have powers of 2. Where z and Mish(z) are kept over ln 2, the factor between e and 2 is one with the
    first weights and all biases, and not a product for each element.
    """
    h, i = list(v), 0
    for layer, (m, k) in enumerate(pairwise(sizes)):
        w, b = _layer(p[i:], m, k)
        w = w if layer else [a * (1 / LOG_2) for a in w]
        h = [_mish(z) for z in _linear(h, w, [a * (1 / LOG_2) for a in b])]
        i += (m + 1) * k
    return h


def _last(sizes: Sequence[int], p: P) -> tuple[P, P]:
    """W and b of the last layer, which is linear, for what `_hidden` gives."""
    i = sum((m + 1) * k for m, k in pairwise(sizes[:-1]))
    w, b = _layer(p[i:], *sizes[-2:])
    return ([a * LOG_2 for a in w] if len(sizes) > 2 else w), b


def _network(v: P, sizes: Sequence[int], p: P) -> list[Expression]:
    return _linear(_hidden(v, sizes[:-1], p), *_last(sizes, p))


class MLPRecipe(Recipe):
    """p = (W b) of each layer of f, then of f⁻¹, then α. f's last layer is linear: it follows the sum."""

    approximate = True

    def __init__(self, *sizes: float) -> None:
        *self.sizes, alphas = (int(size) for size in sizes)
        self.encoder = sum((m + 1) * k for m, k in pairwise(self.sizes))
        self.decoder = sum((m + 1) * k for m, k in pairwise(self.sizes[::-1]))
        self.alphas = alphas
        self.parameters = self.encoder + self.decoder + alphas
        pairs = [*pairwise(self.sizes), *pairwise(self.sizes[::-1])]
        self.layout = (*((m + 1) * k for m, k in pairs), alphas)
        self.terms_ = self.sizes[-2]

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return _hidden([v], self.sizes[:-1], p)

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        (w, b), alpha = _last(self.sizes, p), p[-self.alphas :]
        s = _linear(t, w, [n * one for one in b])
        s = [exp((alpha[o % self.alphas] - 1) * log_n) * one for o, one in enumerate(s)]
        return _network(s, self.sizes[::-1], p[self.encoder :])[0]

    def around(self, v: Expression, p: P) -> Expression:
        return _network(_network([v], self.sizes, p), self.sizes[::-1], p[self.encoder :])[0]


def _sinh(u: Expression) -> Expression:
    return two_sinh(u, const(0)) * 0.5


class InvertibleRecipe(Recipe):
    """p = a, b, d, ε of each layer, then t, then α. f grows with a power of x: where its sum leaves the range in which
    float32 is safe, also for the gradients, it is taken in float64."""

    scales_, double = 1, True

    def __init__(self, layers: float, magnitude: float, eps: float) -> None:
        self.layers, self.magnitude, self.eps = int(layers), bool(magnitude), eps
        self.parameters = 4 * self.layers + 2
        self.layout = (4 * self.layers, 1, 1)

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [self._network(log_magnitude(v, self.eps) if self.magnitude else v, p)]

    def overflow(self, t: P) -> Expression:
        return outside(within(t[0], -1e24, 1e24))

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        return [self._network(wide(log_magnitude(v, self.eps) if self.magnitude else v), p)]

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        return [const(0)]

    def _network(self, x: Expression, p: P) -> Expression:
        for i in range(self.layers):
            a, b, d, e = p[4 * i : 4 * i + 4]
            x = _sinh(exp(d) * asinh(exp(a) * x + b, const(0)) + e)
        return x

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        shift, alpha = p[-2:]
        # n^(α−1)·(Σ + n·t) − t, written so that t has no part in a mean (α = 0)
        s = exp((alpha - 1) * log_n) * t[0] + (exp(alpha * log_n) - 1) * shift
        for i in reversed(range(self.layers)):
            a, b, d, e = p[4 * i : 4 * i + 4]
            s = (_sinh((asinh(s, const(0)) - e) / exp(d)) - b) / exp(a)
        return exp(minimum(s, LARGEST_EXPONENT)) if self.magnitude else s


class MixtureRecipe(Recipe):
    """p = those of each part without its α, then ω, then α of each part."""

    def __init__(self, parts: Sequence[Recipe]) -> None:
        self.parts, k = parts, len(parts)
        self.layout = (*(size for part in parts for size in part.layout[:-1]), k, k)
        self.parameters = sum(self.layout)
        self.terms_, self.scales_ = sum(part.terms_ for part in parts), sum(part.scales_ for part in parts)
        self.double = any(part.double for part in parts)

    def _own(self, p: P) -> Iterator[tuple[Recipe, P]]:
        """The parts, each with the parameters it knows."""
        i, k = 0, len(self.parts)
        for j, part in enumerate(self.parts):
            yield part, [*p[i : i + part.parameters - 1], p[len(p) - k + j]]
            i += part.parameters - 1

    def _cut(self, values: P, name: str) -> Iterator[P]:
        i = 0
        for part in self.parts:
            yield values[i : i + getattr(part, name)]
            i += getattr(part, name)

    def terms(self, v: Expression, p: P) -> list[Expression]:
        return [term for part, own in self._own(p) for term in part.terms(v, own)]

    def overflow(self, t: P) -> Expression:
        cut = zip(self.parts, self._cut(t, "terms_"), strict=True)
        found = [part.overflow(own) for part, own in cut if part.scales_]
        return sum(found[1:], found[0])

    def scaled_terms(self, v: Expression, p: P, h: P) -> list[Expression]:
        cut = zip(self._own(p), self._cut(h, "scales_"), strict=True)
        return [term for (part, own), scales in cut for term in part.scaled_terms(v, own, scales)]

    def scales(self, low: Expression, high: Expression, least: Expression, p: P) -> list[Expression]:
        return [scale for part, own in self._own(p) for scale in part.scales(low, high, least, own)]

    def finish(self, t: P, n: Expression, log_n: Expression, p: P, h: P) -> Expression:
        k = len(self.parts)
        weights = _softmax(p[len(p) - 2 * k : len(p) - k])
        cut = zip(weights, self._own(p), self._cut(t, "terms_"), self._cut(h, "scales_"), strict=True)
        y = [w * part.finish(sums, n, log_n, own, scales) for w, (part, own), sums, scales in cut]
        return sum(y[1:], y[0])
