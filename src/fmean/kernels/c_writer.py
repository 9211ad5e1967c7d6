"""C++ as the language of formulas."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .expression import PARAMETER, Expression, Writer
from .sections import Sections

__all__ = ["c_writer", "lines_of", "vector"]


def c_writer(s: Sections) -> CWriter:
    return DoubleWriter() if s.recipe.double_terms else CWriter()


class CWriter(Writer):
    suffix = "f"

    def constant(self, value: float) -> str:
        if math.isinf(value):
            return f"({'-' * (value < 0)}__builtin_inf{self.suffix}())"
        return f"({value!r}{self.suffix})"

    def line(self, node: Expression, name: str, value: str) -> str:
        truth = node.op in ("<", ">", "==", "&", "|")
        kind = ("B" if truth else "F") if node.level == PARAMETER else "M" if truth else "V"
        return f"const {kind} {name} = {value};"

    def value(self, node: Expression, args: list[str]) -> str:
        if node.op == "exp2" and node.level > PARAMETER and node.args[0].op == "neg":
            inverse = Expression("exp2", node.args[0].args[0])
            if inverse in self.names:  # a division goes on beside other arithmetic, a second power does not
                return f"1.0f / {self.names[inverse]}"
        if node.op in ("min", "max", "where", "exp2", "log2", "sqrt", "abs"):
            numbers = node.args[1:] if node.op == "where" else node.args
            first = len(args) - len(numbers)
            as_one = "splat" if node.level > PARAMETER else "F_"
            splats = [a if e.level else f"{as_one}({a})" for a, e in zip(args[first:], numbers, strict=True)]
            args = [*args[:first], *splats]
            name = {"where": "sel"}.get(node.op, f"{node.op}_")
            return f"{name}({', '.join(args)})"
        if node.op == "wide":  # all numbers are, or, of an f that stays within float32, none
            return args[0]
        if node.op in ("neg", "reciprocal"):
            return f"-{args[0]}" if node.op == "neg" else f"1.0f / {args[0]}"
        return f"{args[0]} {node.op} {args[1]}"


class DoubleWriter(CWriter):
    suffix = ""


def lines_of(lines: Iterable[str], indent: int) -> str:
    return "\n".join(" " * indent + line for line in lines)


def vector(writer: Writer, e: Expression) -> str:
    return f"splat({writer[e]})"
