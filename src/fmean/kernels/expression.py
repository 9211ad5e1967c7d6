"""A small language of formulas: written once for each f, differentiated here, printed for a GPU and for a CPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

__all__ = [
    "ELEMENT",
    "LOG_2",
    "PARAMETER",
    "ROW",
    "Expression",
    "Writer",
    "absolute",
    "below",
    "both",
    "const",
    "either",
    "exp",
    "exp2",
    "frontier",
    "given",
    "gradient",
    "log",
    "log2",
    "maximum",
    "minimum",
    "reciprocal",
    "sqrt",
    "variable",
    "where",
    "wide",
]

# How often a value is computed: once in a program, once for a row (a set), or for each element of a row.
PARAMETER, ROW, ELEMENT = range(3)

LOG_2 = math.log(2)


class Expression:
    """A node of a formula. Equal formulas are one node, so that nothing is computed twice."""

    __slots__ = ("args", "level", "op")
    _all: ClassVar[dict[tuple[Any, ...], Expression]] = {}

    op: str
    args: tuple[Any, ...]
    level: int

    def __new__(cls, op: str, *args: Any, level: int | None = None) -> Expression:
        key = (op, level, *(id(a) if isinstance(a, Expression) else a for a in args))
        if key not in cls._all:
            node = super().__new__(cls)
            node.op, node.args = op, args
            levels = [a.level for a in args if isinstance(a, Expression)]
            node.level = level if level is not None else max(levels, default=PARAMETER)
            cls._all[key] = node
        return cls._all[key]

    def __add__(self, other: Any) -> Expression:
        a, b = self, const(other)
        if _is(a, 0) or _is(b, 0):
            return b if _is(a, 0) else a
        return Expression("+", a, b)

    def __sub__(self, other: Any) -> Expression:
        a, b = self, const(other)
        return a if _is(b, 0) else -b if _is(a, 0) else Expression("-", a, b)

    def __mul__(self, other: Any) -> Expression:
        a, b = self, const(other)
        if _is(a, 0) or _is(b, 0):
            return const(0)
        if _is(a, 1) or _is(b, 1):
            return b if _is(a, 1) else a
        if a.op == b.op == "const":
            return const(a.args[0] * b.args[0])
        if a.op == "neg" and b.op == "const":
            return -Expression("*", a.args[0], b)  # so that what is the negative of something else is seen to be
        return Expression("*", a, b)

    def __truediv__(self, other: Any) -> Expression:
        a, b = self, const(other)
        if a.op == b.op == "const" and not _is(b, 0):
            return const(a.args[0] / b.args[0])
        return const(0) if _is(a, 0) else a if _is(b, 1) else Expression("/", a, b)

    def __neg__(self) -> Expression:
        if self.op == "const":
            return const(-self.args[0])
        return self.args[0] if self.op == "neg" else Expression("neg", self)

    def __lt__(self, other: Any) -> Expression:
        return Expression("<", self, const(other))

    def __gt__(self, other: Any) -> Expression:
        return Expression(">", self, const(other))

    def equals(self, other: Any) -> Expression:
        return Expression("==", self, const(other))

    def __radd__(self, other: float) -> Expression:
        return const(other) + self

    def __rsub__(self, other: float) -> Expression:
        return const(other) - self

    def __rmul__(self, other: float) -> Expression:
        return const(other) * self

    def __rtruediv__(self, other: float) -> Expression:
        return const(other) / self


def const(value: Any) -> Expression:
    return value if isinstance(value, Expression) else Expression("const", float(value))


def variable(name: str, level: int) -> Expression:
    return Expression("variable", name, level=level)


def exp2(a: Any) -> Expression:
    a = const(a)
    return const(2 ** a.args[0]) if a.op == "const" else Expression("exp2", a)


def log2(a: Any) -> Expression:
    return Expression("log2", const(a))


# Processors have the powers and logarithms of 2; the factor is often one with another that is there anyway.
def exp(a: Any) -> Expression:
    return exp2(const(a) * (1 / LOG_2))


def log(a: Any) -> Expression:
    return log2(a) * LOG_2


def sqrt(a: Any) -> Expression:
    return Expression("sqrt", const(a))


def reciprocal(a: Any) -> Expression:
    """1/a of a positive a: a GPU has a faster way to it than division."""
    return Expression("reciprocal", const(a))


def absolute(a: Any) -> Expression:
    return Expression("abs", const(a))


def minimum(a: Any, b: Any) -> Expression:
    a, b = const(a), const(b)
    return const(min(a.args[0], b.args[0])) if a.op == b.op == "const" else Expression("min", a, b)


def maximum(a: Any, b: Any) -> Expression:
    a, b = const(a), const(b)
    return const(max(a.args[0], b.args[0])) if a.op == b.op == "const" else Expression("max", a, b)


def where(condition: Expression, a: Any, b: Any) -> Expression:
    a, b = const(a), const(b)
    return a if a is b else Expression("where", condition, a, b)


def both(a: Expression, b: Expression) -> Expression:
    return Expression("&", a, b)


def either(a: Expression, b: Expression) -> Expression:
    return Expression("|", a, b)


def wide(a: Expression) -> Expression:
    """a in float64."""
    return Expression("wide", a)


def given(value: Expression, *partials: tuple[Expression, Expression]) -> Expression:
    """A value whose partial derivatives ``(by, ∂value/∂by)`` are known better than the rules would find them."""
    by, slopes = [p[0] for p in partials], [p[1] for p in partials]
    return Expression("given", value, *by, *slopes)


def _is(a: Expression, value: float) -> bool:
    return a.op == "const" and a.args[0] == value


def _partials(node: Expression) -> Iterable[tuple[Expression, Expression]]:
    """The arguments of a node, each with the derivative of the node by it."""
    a, *rest = node.args
    b: Any = rest[0] if rest else None
    match node.op:
        case "+":
            yield from ((a, const(1)), (b, const(1)))
        case "-":
            yield from ((a, const(1)), (b, const(-1)))
        case "*":
            yield from ((a, b), (b, a))
        case "/":
            yield from ((a, 1 / b), (b, -(node / b)))
        case "neg":
            yield a, const(-1)
        case "exp2":
            yield a, node * LOG_2
        case "log2":
            yield a, (1 / LOG_2) / a
        case "sqrt":
            yield a, 0.5 / node
        case "reciprocal":
            yield a, -(node * node)
        case "abs":
            yield a, where(a < 0, -1, where(a > 0, 1, 0))
        case "min":
            yield from ((a, where(a < b, 1, 0)), (b, where(a < b, 0, 1)))
        case "max":
            yield from ((a, where(a > b, 1, 0)), (b, where(a > b, 0, 1)))
        case "where":
            yield from ((b, where(a, 1, 0)), (rest[1], where(a, 0, 1)))
        case "wide":
            yield a, const(1)
        case "given":
            half = len(rest) // 2
            yield from zip(rest[:half], rest[half:], strict=True)


def _sorted(nodes: Iterable[Expression], inside: bool = False) -> list[Expression]:
    """All nodes below these, arguments first; as they are computed, or, `inside` false, as they are differentiated."""
    seen: dict[Expression, None] = {}

    def visit(node: Expression) -> None:
        if node in seen:
            return
        if node.op == "given":
            below = node.args[:1] if inside else node.args[1 : 1 + len(node.args) // 2]
        else:
            below = node.args
        for argument in below:
            if isinstance(argument, Expression):
                visit(argument)
        seen[node] = None

    for node in nodes:
        visit(node)
    return list(seen)


def below(outputs: Iterable[Expression]) -> list[Expression]:
    """All that is computed for each element on the way to the outputs."""
    return [node for node in _sorted(outputs, inside=True) if node.level == ELEMENT]


def gradient(outputs: Mapping[Expression, Any], by: Sequence[Expression]) -> list[Expression]:
    """Σ weight·∂output/∂b for each b, in reverse mode; `outputs` maps each output to its weight."""
    totals: dict[Expression, Expression] = {node: const(weight) for node, weight in outputs.items()}
    for node in reversed(_sorted(outputs)):
        total = totals.get(node)
        if total is None or node in by or node.op in ("const", "variable"):
            continue
        for argument, partial in _partials(node):
            if argument.op != "const":
                totals[argument] = totals.get(argument, const(0)) + _times(total, partial)
    return [totals.get(b, const(0)) for b in by]


def _times(total: Expression, partial: Expression) -> Expression:
    # A partial of where(c, 1, 0) chooses; a product with 0 would make NaN of ∞.
    if partial.op == "where" and _is(partial.args[1], 1) and _is(partial.args[2], 0):
        return where(partial.args[0], total, 0)
    if partial.op == "where" and _is(partial.args[1], 0) and _is(partial.args[2], 1):
        return where(partial.args[0], 0, total)
    return -total if _is(partial, -1) else total * partial


def frontier(outputs: Iterable[Expression]) -> list[Expression]:
    """What the outputs take from the level of parameters: the nodes there that rows and elements use."""
    found: dict[Expression, None] = {}
    for node in _sorted(outputs):
        if node.level == PARAMETER:
            continue
        inputs = node.args[1 : 1 + len(node.args) // 2] if node.op == "given" else node.args
        for argument in inputs:
            if isinstance(argument, Expression) and argument.level == PARAMETER and argument.op != "const":
                found[argument] = None
    return list(found)


class Writer:
    """Writes formulas as lines of a program, each value once; a subclass knows the language."""

    def __init__(self, names: dict[Expression, str] | None = None, count: Iterator[int] | None = None) -> None:
        self.names = names if names is not None else {}
        self.count = count if count is not None else itertools.count()

    def fork(self) -> Writer:
        """One that knows what has been written so far: what it writes itself has a scope of its own."""
        return type(self)(dict(self.names), self.count)

    def write(self, outputs: Iterable[Expression], level: int = ELEMENT) -> list[str]:
        """Lines that compute what the outputs need, up to a level."""
        lines = []
        for node in _sorted(outputs, inside=True):
            if node in self.names or node.level > level:
                continue
            if node.op in ("const", "variable", "given"):
                self.names[node] = (
                    self.names[node.args[0]]
                    if node.op == "given"
                    else node.args[0]
                    if node.op == "variable"
                    else self.constant(node.args[0])
                )
                continue
            name = f"t{next(self.count)}"
            lines.append(self.line(node, name, self.value(node, [self.names[a] for a in node.args])))
            self.names[node] = name
        return lines

    def __getitem__(self, node: Expression) -> str:
        return self.names[node]

    def constant(self, value: float) -> str:
        raise NotImplementedError

    def line(self, node: Expression, name: str, value: str) -> str:
        raise NotImplementedError

    def value(self, node: Expression, args: list[str]) -> str:
        raise NotImplementedError
