"""The formulas of a kernel, section by section, for a recipe: what both languages print."""

from __future__ import annotations

from functools import cached_property

from .expression import ELEMENT, PARAMETER, ROW, Expression, absolute, below, frontier, gradient, variable, where
from .recipe import Recipe

__all__ = ["Sections"]

DEAR = ("exp2", "log2", "reciprocal", "sqrt", "/")


class Sections:
    """Expressions of the variables that the program around them holds:

    p0 p1 … (parameters), v (an element, centred), T0 … (the sums), h0 … (their scales), n and log_n (the size of
    the set), low, high, least (the range of v), g (∂L/∂y), G0 … (∂L/∂T), a0 … (the sums of the gradients).

    A recipe may want the largest term in place of the sum, as T0. Its gradient is shared by the elements that reach it,
    of which the program around counts the `ties`.
    """

    def __init__(self, recipe: Recipe, learned: bool = True) -> None:
        self.recipe, self.learned = recipe, learned
        self.p = [variable(f"p{i}", PARAMETER) for i in range(recipe.parameters)]
        self.v = variable("v", ELEMENT)
        self.t = [variable(f"T{i}", ROW) for i in range(recipe.terms_)]
        self.by_t = [variable(f"G{i}", ROW) for i in range(recipe.terms_)]
        self.n, self.log_n, self.g = (variable(name, ROW) for name in ("n", "log_n", "g"))
        low, high, least = (variable(name, ROW) for name in ("low", "high", "least"))
        self.h = [variable(f"h{i}", ROW) for i in range(recipe.scales_)]
        self.scales = recipe.scales(low, high, least, self.p) if self.h else []
        self.overflow = recipe.overflow(self.t) if self.h else None

    @cached_property
    def terms(self) -> list[Expression]:
        return self.recipe.terms(self.v, self.p)

    @cached_property
    def scaled_terms(self) -> list[Expression]:
        return self.recipe.scaled_terms(self.v, self.p, self.h)

    def slopes(self, terms: list[Expression]) -> list[Expression]:
        """∂t/∂v of each term."""
        return self._of_largest([gradient({term: 1}, [self.v])[0] for term in terms])

    @property
    def largest(self) -> bool:
        return self.recipe.reduction == "max"

    @cached_property
    def tie(self) -> Expression:
        """1 of an element that reaches the largest term, else 0."""
        return where(self.terms[0].equals(self.t[0]), 1, 0)

    def _of_largest(self, found: list[Expression]) -> list[Expression]:
        return [where(self.terms[0].equals(self.t[0]), e, 0) for e in found] if self.largest else found

    @cached_property
    def y(self) -> Expression:
        return self.recipe.finish(self.t, self.n, self.log_n, self.p, self.h)

    @cached_property
    def roots(self) -> list[Expression]:
        """What rows and elements use of the parameters, and so what gradients are summed for, if they are learned."""
        return frontier([self.y, *self.terms, *self.scaled_terms]) if self.learned else []

    @cached_property
    def back(self) -> list[Expression]:
        """Of y, with ∂L/∂y = g: ∂L/∂T0 …, then ∂L/∂root for each root."""
        found = gradient({self.y: self.g}, [*self.t, *self.roots])
        return [found[0] / variable("ties", ROW), *found[1:]] if self.largest else found

    @cached_property
    def back_element(self) -> list[Expression]:
        """Of the terms, with ∂L/∂T = G: ∂L/∂v, then ∂L/∂root for each root."""
        return self._of_largest(gradient(dict(zip(self.terms, self.by_t, strict=True)), [self.v, *self.roots]))

    @cached_property
    def handed(self) -> list[str]:
        """What a row hands to its elements in a layer, beside shift, share and scales."""
        return [*(f"G{i}" for i in range(len(self.t))), *(["T0"] if self.largest else [])]

    @cached_property
    def tabled(self) -> bool:
        """Whether the terms of a node are worth keeping for all rows that it is an element of."""
        return any(e.op in DEAR for e in below(self.terms))

    @cached_property
    def dear(self) -> list[Expression]:
        """What is worth keeping from the terms for their gradients, where a row is short enough for the cache."""
        later = set(below(self.back_element))
        return [e for e in below(self.terms) if e in later and e.op in DEAR]

    @cached_property
    def back_scaled_element(self) -> list[Expression]:
        return gradient(dict(zip(self.scaled_terms, self.by_t, strict=True)), [self.v, *self.roots])

    @cached_property
    def outputs(self) -> list[Expression]:
        """All that depends on parameters, of forward and backward."""
        slopes = [*self.slopes(self.terms), *self.slopes(self.scaled_terms)]
        found = [*self.terms, *self.scaled_terms, *self.scales, self.y, *self.back, *slopes]
        return [*found, *self.back_element, *self.back_scaled_element]

    @cached_property
    def inversion(self) -> list[Expression]:
        """(|f⁻¹(f(v))| − |v|)², then its gradient by each root of its own."""
        error = absolute(self.recipe.around(self.v, self.p)) - absolute(self.v)
        loss = error * error
        return [loss, *gradient({loss: 1}, self.inversion_roots)]

    @cached_property
    def inversion_roots(self) -> list[Expression]:
        return self.p[: self.recipe.parameters]

    def by_parameters(self, sums: dict[Expression, Expression]) -> list[Expression]:
        """∂L/∂p0 … from the summed gradients of the roots."""
        return gradient(sums, self.p)
