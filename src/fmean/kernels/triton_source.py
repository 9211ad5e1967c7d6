"""The kernels for a GPU, as Triton source.

A program takes BR rows (sets) of about equal length and a block of features, and every thread goes down its own
columns: no two have to agree on anything until the gradients of the parameters are summed. Rows of very many elements
have a launch of their own, with BE elements of one row at a time and more threads. A row is read for the mean μ (with
a β), then, from the cache, for the sums; where these show that a term has overflowed, they are taken again in scaled
form. Backward reads the row once more, for the gradient of x. Nothing of the size of the messages is written but that.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable

from .expression import PARAMETER, ROW, Expression, Writer, variable
from .sections import Sections

__all__ = ["triton_source"]


class TritonWriter(Writer):
    log2 = "fast_log2"

    def constant(self, value: float) -> str:
        return f'float("{"-" * (value < 0)}inf")' if math.isinf(value) else f"({value!r})"

    def line(self, node: Expression, name: str, value: str) -> str:
        return f"{name} = {value}"

    def value(self, node: Expression, args: list[str]) -> str:
        names = {"min": "minimum", "max": "maximum"}
        if node.op == "log2":
            return f"{self.log2}({args[0]})"
        if node.op in ("exp2", "sqrt", "abs", "where", "min", "max"):
            nan = ["propagate_nan=tl.PropagateNan.ALL"] if node.op in names else []
            return f"tl.{names.get(node.op, node.op)}({', '.join(args + nan)})"
        if node.op == "reciprocal":
            return f"tl.rsqrt({args[0]}) * tl.rsqrt({args[0]})"  # one instruction, where a division takes eight
        if node.op == "wide":
            return f"({args[0]}).to(tl.float64)"
        return f"-{args[0]}" if node.op == "neg" else f"{args[0]} {node.op} {args[1]}"


class DoubleWriter(TritonWriter):
    log2 = "tl.log2"


def _writer(s: Sections) -> TritonWriter:
    return DoubleWriter() if s.recipe.double else TritonWriter()


POINTERS = "x, factor, rows, starts, ends, col, edge"
CONSTANTS = """D, size, blocks, line,
    COL: tl.constexpr, EDGE: tl.constexpr, FACTOR: tl.constexpr, ROWS: tl.constexpr,
    BR: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr,"""


def triton_source(s: Sections, centred: bool, held: bool = False) -> str:
    """The source of all kernels for an f.

    Arguments:
        s: What f comes to.
        centred: Whether x − β·μ is what f is given.
        held: Whether each feature holds parameters of its own: ``[D, size]`` instead of ``[size]``.
    """
    kernels = [_forward, _backward, _rows, _sources, *([_inversion] if s.recipe.approximate else [])]
    return "\n".join(kernel(s, centred, held) for kernel in kernels)


def _lines(lines: Iterable[str], indent: int) -> str:
    return "".join(" " * indent + line + "\n" for line in lines)


ELEMENT_AT = "element(x, factor, col, edge, {}, end, d, D, COL, EDGE, FACTOR)"


def _kind(s: Sections) -> str:
    return "tl.float64" if s.recipe.double else "tl.float32"


def _tensors(s: Sections, centred: bool) -> str:
    """The names of the tensors of parameters."""
    return ", ".join(f"q{j}" for j in range(len(s.recipe.layout) + centred))


def _parameters(s: Sections, writer: Writer, outputs: list[Expression], centred: bool, held: bool) -> str:
    places = [(j, k) for j, size in enumerate(s.recipe.layout) for k in range(size)]
    names = [(f"p{i}", j, k) for i, (j, k) in enumerate(places)]
    names += [("beta", len(s.recipe.layout), 0)] if centred else []
    sizes = [*s.recipe.layout, 1]
    # Held by each feature, they are of the features d; what lies beyond the last one has the last one's.
    at = "tl.minimum(d, D - 1) * {} + " if held else ""
    lines = [f"{name} = tl.load(q{j} + {at.format(sizes[j])}{k})" for name, j, k in names]
    return _lines(lines + writer.write(outputs, PARAMETER), 4)


def _head(s: Sections, centred: bool, kernel: str, outputs: str) -> str:
    return f"""
@triton.jit(do_not_specialize=["size", "blocks", "line"])
def {kernel}({outputs}, {POINTERS}, {_tensors(s, centred)}, {CONSTANTS}
):
    # The blocks of features of a row are at work at the same time: the longest row is begun first with all of them.
    across = tl.cdiv(D, BD)
    block, program = tl.program_id(0) % across, (tl.program_id(0) // across).to(tl.int64)
    d = block * BD + tl.arange(0, BD)[None, :]
"""


BOUNDS = """row, real, start, end, count, longest = bounds(first, rows, starts, ends, size, BR, BE)
n = tl.maximum(count, 1).to(tl.float32)
"""
# A program of backward takes ROWS times BR rows: they share one line of partial sums.
ROWS_OF_PROGRAM = f"""    for step in range(ROWS):
        first = (program * ROWS + step) * BR
{textwrap.indent(BOUNDS, " " * 8)}"""
FLAG = 4  # features that share a flag: no block of features is smaller


def _mean(s: Sections, centred: bool) -> str:
    if not centred:
        return "log_n = tl.log(n)\nmu = tl.zeros([BR, BD], tl.float32)\nshift = mu\n"
    rest = f"n, d, D, COL, EDGE, FACTOR, {s.recipe.double}, BR, BE, BD"
    return f"log_n = tl.log(n)\nmu = mean(x, factor, col, edge, start, end, longest, {rest})\nshift = beta * mu\n"


def _loop(writer: Writer, sums: dict[str, Expression], indent: int, kind: str) -> str:
    """Goes over the elements of the row, the next on its way while one is worked on, and takes sums."""
    inner = writer.fork()
    body = inner.write(sums.values())
    lines = [
        *(f"{name}_ = tl.zeros([BR * BE, BD], {kind})" for name in sums),
        f"next_x, next_i, next_w = {ELEMENT_AT.format('start')}",
        "for k in range(0, longest, BE):",
        "    v = (next_x * next_w if FACTOR else next_x) - shift",
        f"    next_x, next_i, next_w = {ELEMENT_AT.format('start + (k + BE)')}",
        *(f"    {line}" for line in body),
        "    if BR * BE > 1:",
        "        there = start + k < end",
        *(f"        {name}_ += tl.where(there, {inner[value]}, 0.0)" for name, value in sums.items()),
        "    else:",
        *(f"        {name}_ += {inner[value]}" for name, value in sums.items()),
        *(f"{name} = tl.sum({name}_, 0, keep_dims=True) if BE > 1 else {name}_" for name in sums),
    ]
    return _lines(lines, indent)


RANGE = f"""low_ = tl.full([BR * BE, BD], 3e38, tl.float32)
high_ = -low_
least_ = low_
for k in range(0, longest, BE):
    x_, i_, w_ = {ELEMENT_AT.format("start + k")}
    v = (x_ * w_ if FACTOR else x_) - shift
    there = start + k < end
    low_ = tl.minimum(low_, tl.where(there, v, 3e38))
    high_ = tl.maximum(high_, tl.where(there, v, -3e38))
    least_ = tl.minimum(least_, tl.where(there, tl.abs(v), 3e38))
low = tl.min(low_, 0, keep_dims=True) if BE > 1 else low_
high = tl.max(high_, 0, keep_dims=True) if BE > 1 else high_
least = tl.min(least_, 0, keep_dims=True) if BE > 1 else least_"""


def _named(terms: list[Expression], slopes: list[Expression]) -> dict[str, Expression]:
    return {f"T{i}": t for i, t in enumerate(terms)} | {f"S{i}": t for i, t in enumerate(slopes)}


def _row(s: Sections, writer: Writer, centred: bool, with_slopes: bool, indent: int) -> str:
    """The sums of a row, in scaled form where that is needed; `scaled` says whether."""
    text = _lines(_mean(s, centred).splitlines(), indent)
    if s.largest:
        return text + _largest(s, writer, with_slopes, indent)
    slopes = s.slopes(s.terms) if with_slopes else []
    text += _lines(writer.write([*s.terms, *slopes], ROW), indent)
    text += _loop(writer, _named(s.terms, slopes), indent, _kind(s))
    if s.overflow is None:
        return text
    test = writer.fork()
    lines = [f"h{i} = tl.zeros([BR, BD], tl.float32)" for i in range(len(s.h))] + test.write([s.overflow])
    lines += [f"over = tl.where((d < D) & (count > 0), {test[s.overflow]}, 0.0)", "scaled = tl.max(over) > 0"]
    lines += ["if scaled:"]
    text += _lines(lines, indent)
    slopes = s.slopes(s.scaled_terms) if with_slopes else []
    inner = test.fork()
    sums = _named(s.scaled_terms, slopes)
    lines = [*RANGE.splitlines(), *inner.write(s.scales)]
    lines += [f"h{i} = tl.where(over > 0, {inner[h]}, 0.0)" for i, h in enumerate(s.scales)]
    lines += inner.write([*s.scaled_terms, *slopes], ROW) + [f"{name}u = {name}" for name in sums]
    text += _lines(lines, indent + 4) + _loop(inner, sums, indent + 4, _kind(s))
    return text + _lines([f"{name} = tl.where(over > 0, {name}, {name}u)" for name in sums], indent + 4)


def _largest(s: Sections, writer: Writer, with_slopes: bool, indent: int) -> str:
    """The maximum in place of the sum; its gradient is shared by the elements that reach it."""
    element = [
        "for k in range(0, longest, BE):",
        f"    x_, i_, w_ = {ELEMENT_AT.format('start + k')}",
        "    v = (x_ * w_ if FACTOR else x_) - shift",
    ]
    inner, (term,) = writer.fork(), s.terms
    lines = [
        "T0_ = tl.full([BR * BE, BD], float('-inf'), tl.float32)",
        "nan_ = tl.zeros([BR * BE, BD], tl.float32)",
        *element,
        *(f"    {line}" for line in inner.write(s.terms)),
        f"    T0_ = tl.maximum(T0_, tl.where(start + k < end, {inner[term]}, float('-inf')))",
        f"    nan_ = tl.where((start + k < end) & ({inner[term]} != {inner[term]}), 1.0, nan_)",
        "T0 = tl.max(T0_, 0, keep_dims=True) if BE > 1 else T0_",
        "nan = tl.max(nan_, 0, keep_dims=True) if BE > 1 else nan_",
        "T0 = tl.where(nan > 0, float('nan'), T0)",
    ]
    if with_slopes:
        inner, sums = writer.fork(), {"S0": s.slopes(s.terms)[0], "ties": s.tie}
        lines += [f"{name}_ = tl.zeros([BR * BE, BD], tl.float32)" for name in sums]
        lines += [*element, *(f"    {line}" for line in inner.write(sums.values()))]
        lines += [f"    {name}_ += tl.where(start + k < end, {inner[e]}, 0.0)" for name, e in sums.items()]
        lines += [f"{name} = tl.sum({name}_, 0, keep_dims=True) if BE > 1 else {name}_" for name in sums]
        lines.append("ties = tl.maximum(ties, 1.0)")
    return _lines(lines, indent)


def _forward(s: Sections, centred: bool, held: bool) -> str:
    writer = _writer(s)
    head = _parameters(s, writer, [*s.terms, *s.scaled_terms, s.y, *s.scales], centred, held)
    row = _row(s, writer, centred, False, 8)
    last = writer.write([s.y])
    return f"""{_head(s, centred, "forward", "y")}{head}    first = program * BR
{textwrap.indent(BOUNDS, " " * 4)}    out = tl.zeros([BR, BD], tl.float32)
    if longest > 0:
{row}{_lines(last, 8)}        out = tl.where(count > 0, ({writer[s.y]}).to(tl.float32), 0.0)
    tl.store(y + row * D + d, out.to(y.dtype.element_ty), mask=real & (d < D))
"""


def columns(s: Sections) -> int:
    """How many sums a program of backward writes: of each parameter, β, and the inversion objective."""
    return s.recipe.parameters + 1 + s.recipe.approximate


def _line(s: Sections, sums: list[str], held: bool) -> list[str]:
    """Writes a program's line of partial sums, given what is to be summed over its features: `[BR, BD]`, or a number.

    Held by each feature, the sums are of the rows alone, and all blocks of features of a row write into one line.
    """
    if not held:
        lines = [f"to = partial + (line + tl.program_id(0)) * {columns(s)}"]
        return lines + [
            f"tl.store(to + {i}, {e if _is_number(e) else f'tl.sum(tl.where(d < D, {e}, 0.0))'})"
            for i, e in enumerate(sums)
        ]
    lines = [f"to = partial + (line + tl.program_id(0) // across) * {columns(s)} * D + d"]
    zero = "tl.zeros([BR, BD], tl.float32)"
    return lines + [
        f"tl.store(to + {i} * D, tl.sum({e} + {zero}, 0, keep_dims=True), mask=d < D)" for i, e in enumerate(sums)
    ]


def _is_number(e: str) -> bool:
    return e == "0.0"


def _sums(s: Sections, beta: str, held: bool) -> tuple[str, str]:
    """Gradients of the roots: their start, and the line of partial sums they end in."""
    start = [
        f"{name} = tl.zeros([BR, BD], tl.float32)" for name in [*(f"a{i}" for i in range(len(s.roots))), "by_beta"]
    ]
    by = s.by_parameters({root: variable(f"a{i}", PARAMETER) for i, root in enumerate(s.roots)})
    writer = _writer(s)
    lines = writer.write(by)
    sums = ["0.0" if e.op == "const" else writer[e] for e in by]
    lines += _line(s, [*sums, beta, *(["0.0"] * s.recipe.approximate)], held)
    return _lines(start, 4), _lines(lines, 4)


def _to_row(s: Sections, writer: Writer, centred: bool, indent: int) -> str:
    """From ∂L/∂y to ∂L/∂T (G), the share of each element in ∂L/∂μ, and the gradients of the roots."""
    lines = ["g = tl.load(grad + row * D + d, mask=real & (d < D), other=0.0).to(tl.float32)", *writer.write(s.back)]
    zero = " + tl.zeros([BR, BD], tl.float32)"
    for i, e in enumerate(s.back[: len(s.t)]):
        lines.append(f"G{i} = {writer[e]}" + zero * (e.op == "const"))
    for i, e in enumerate(s.back[len(s.t) :]):
        if e.op != "const":
            lines.append(f"a{i} += tl.where(count > 0, {writer[e]}, 0.0).to(tl.float32)")
    if centred:
        total = " + ".join(f"G{i} * S{i}" for i in range(len(s.t)))
        lines += [f"total = tl.where(count > 0, {total}, 0.0).to(tl.float32)", "by_beta -= mu * total"]
        lines += ["share = beta * total / n"]
    return _lines(lines, indent)


def _element(s: Sections, inner: Writer, outputs: list[Expression]) -> list[str]:
    """∂L/∂v of the elements, as dv, and the gradients of the roots, as b0 …"""
    lines = inner.write(outputs)
    return [*lines, f"dv = ({inner[outputs[0]]}).to(tl.float32)"]


def _elements(s: Sections, writer: Writer, outputs: list[Expression], centred: bool, indent: int) -> str:
    """The loop over the elements that writes ∂L/∂x of each."""
    writer = writer.fork()
    before = writer.write(outputs, ROW)
    inner = writer.fork()
    body = _element(s, inner, outputs)
    adds = {i: inner[e] for i, e in enumerate(outputs[1:]) if e.op != "const"}
    # With one element at a time the sums over elements go on in those over rows; else they have a shape of their own.
    loop = [
        *before,
        *(["if BE > 1:"] if adds else []),
        *(f"    b{i} = tl.zeros([BR * BE, BD], tl.float32)" for i in adds),
        f"next_x, next_i, next_w = {ELEMENT_AT.format('start')}",
        "for k in range(0, longest, BE):",
        "    x_, place, w = next_x, next_i, next_w",
        "    v = (x_ * w if FACTOR else x_) - shift",
        f"    next_x, next_i, next_w = {ELEMENT_AT.format('start + (k + BE)')}",
        *(f"    {line}" for line in body),
        *(["    dv = dv - share"] if centred else []),
        "    there = start + k < end",
        "    tl.store(dx + place * D + d, (dv * w if FACTOR else dv).to(dx.dtype.element_ty), mask=there & (d < D))",
        "    if FACTOR:",
        "        which = tl.load(edge + start + k, mask=there, other=0) if EDGE else start + k",
        "        to = dfactor + which * blocks + block",
        "        tl.store(to, tl.sum(tl.where(d < D, dv * x_, 0.0), 1, keep_dims=True), mask=there)",
    ]
    if adds:
        loop += [
            "    if BE > 1:",
            *(f"        b{i} += tl.where(there, {value}, 0.0).to(tl.float32)" for i, value in adds.items()),
            "    elif BR > 1:",
            *(f"        a{i} += tl.where(there, {value}, 0.0).to(tl.float32)" for i, value in adds.items()),
            "    else:",
            *(f"        a{i} += ({value}).to(tl.float32)" for i, value in adds.items()),
            "if BE > 1:",
            *(f"    a{i} += tl.sum(b{i}, 0, keep_dims=True)" for i in adds),
        ]
    return _lines(loop, indent)


def _backward(s: Sections, centred: bool, held: bool) -> str:
    writer = _writer(s)
    head = _parameters(s, writer, s.outputs, centred, held)
    start, end = _sums(s, "by_beta", held)
    row = _row(s, writer, centred, centred or s.largest, 12) + _to_row(s, writer, centred, 12)
    if s.h:
        row += "            if scaled:\n" + _elements(s, writer, s.back_scaled_element, centred, 16)
        row += "            else:\n" + _elements(s, writer, s.back_element, centred, 16)
    else:
        row += _elements(s, writer, s.back_element, centred, 12)
    outputs = "grad, dx, dfactor, partial"
    return f"""{_head(s, centred, "backward", outputs)}{head}{start}{ROWS_OF_PROGRAM}        if longest > 0:
{row}
{end}"""


def _planes(s: Sections, centred: bool) -> list[str]:
    """What a row hands to its elements: ∂L/∂T, the maximum, the shift and share, the scales."""
    return [*s.handed, *(["shift", "share"] if centred else [])]


def _rows(s: Sections, centred: bool, held: bool) -> str:
    writer = _writer(s)
    head = _parameters(s, writer, s.outputs, centred, held)
    start, end = _sums(s, "by_beta", held)
    row = _row(s, writer, centred, centred or s.largest, 12) + _to_row(s, writer, centred, 12)
    planes = _planes(s, centred)
    count = len(planes) + len(s.h)
    lines = [f"to = state + row * {count} * D + d", "zero_ = tl.zeros([BR, BD], tl.float32)"]
    lines += [
        f"tl.store(to + {i} * D, ({p}).to(state.dtype.element_ty), mask=real & (d < D))" for i, p in enumerate(planes)
    ]
    if s.h:
        # Of every row that has elements: no other is looked up.
        at = f"flags + row * tl.cdiv(D, {FLAG}) + d // {FLAG}"
        lines += [f"tl.store({at}, zero_ + tl.max(over) > 0, mask=real & (d < D))", "if scaled:"]
        lines += [f"    tl.store(to + {len(planes) + i} * D, h{i}, mask=real & (d < D))" for i in range(len(s.h))]
    outputs = "grad, state, flags, partial"
    return f"""{_head(s, centred, "backward_rows", outputs)}{head}{start}{ROWS_OF_PROGRAM}        if longest > 0:
{row}{_lines(lines, 12)}
{end}"""


def _sources(s: Sections, centred: bool, held: bool) -> str:
    """∂L/∂x of every node, from what the rows it is an element of handed out (here the rows are the transposed)."""
    writer = _writer(s)
    head = _parameters(s, writer, [*s.back_element, *s.back_scaled_element], centred, held)
    start, end = _sums(s, "0.0", held)
    planes = _planes(s, centred)
    count = len(planes) + len(s.h)
    both = zip(s.back_element[1:], s.back_scaled_element[1:], strict=True)
    adds = [i for i, (a, b) in enumerate(both) if a.op != "const" or b.op != "const"]

    def element(outputs: list[Expression], scaled: bool) -> list[str]:
        inner = writer.fork()
        flagged = "mask=inside & (flag > 0), other=0.0"
        lines = [f"h{i} = tl.load(at + {len(planes) + i} * D, {flagged})" for i in range(len(s.h))]
        lines = (lines if scaled else []) + _element(s, inner, outputs)
        return lines + [
            f"b{i} = ({inner[outputs[1 + i]]}).to(tl.float32) + zero" for i in adds if outputs[1 + i].op != "const"
        ]

    plain = element(s.back_element, False)
    if s.h:
        zeros = [f"b{i} = zero" for i in adds]
        choose = [
            f"flag = tl.load(flags + target * tl.cdiv(D, {FLAG}) + d // {FLAG}, mask=inside, other=0)",
            "dv = zero",
            *zeros,
            "if tl.max(flag) > 0:",
            *(f"    {line}" for line in element(s.back_scaled_element, True)),
            "else:",
            *(f"    {line}" for line in plain),
        ]
    else:
        choose = plain
    loop = [
        "for k in range(0, longest, BE):",
        "    i = start + k",
        "    there = i < end",
        "    target = tl.load(col + i, mask=there, other=0)",
        "    inside = there & (d < D)",
        f"    at = state + target * {count} * D + d",
        *(f"    {p} = tl.load(at + {i} * D, mask=inside, other=0.0)" for i, p in enumerate(planes)),
        *(["    shift, share = shift.to(tl.float32), share.to(tl.float32)"] if centred else []),
        "    zero = tl.zeros([BR * BE, BD], tl.float32)",
        "    v = x_ + zero",
        "    if FACTOR:",
        "        which = tl.load(edge + i, mask=there, other=0) if EDGE else i",
        "        w = tl.load(factor + which, mask=there, other=0.0).to(tl.float32)",
        "        v = v * w",
        *(["    v = v - shift"] if centred else []),
        *(f"    {line}" for line in choose),
        *(["    dv = dv - share"] if centred else []),
        "    dv = tl.where(inside, dv, 0.0)",
        "    total_ += dv * w if FACTOR else dv",
        "    if FACTOR:",
        "        to = dfactor + which * blocks + block",
        "        tl.store(to, tl.sum(dv * x_, 1, keep_dims=True), mask=there)",
        *(f"    c{i} += tl.where(inside, b{i}, 0.0)" for i in adds),
    ]
    sums = [f"a{i} += tl.sum(c{i}, 0, keep_dims=True) if BE > 1 else c{i}" for i in adds]
    outputs = "state, flags, dx, dfactor, partial"
    return f"""{_head(s, centred, "backward_sources", outputs)}{head}{start}{ROWS_OF_PROGRAM}
        x_ = tl.load(x + row * D + d, mask=real & (d < D), other=0.0).to(tl.float32)
        total_ = tl.zeros([BR * BE, BD], tl.float32)
{_lines([f"c{i} = tl.zeros([BR * BE, BD], tl.float32)" for i in adds], 8)}{_lines(loop, 8)}
        out = tl.sum(total_, 0, keep_dims=True) if BE > 1 else total_
        tl.store(dx + row * D + d, out.to(dx.dtype.element_ty), mask=real & (d < D))
{_lines(sums, 8)}
{end}"""


def _inversion(s: Sections, centred: bool, held: bool) -> str:
    """(|f⁻¹(f(v))| − |v|)² of every step-th element, over their number, and its gradient by the parameters, times
    weight · norm."""
    writer = _writer(s)
    head = _parameters(s, writer, s.inversion, centred, held)
    inner = writer.fork()
    loss, *by = s.inversion
    body = _mean(s, centred).splitlines()
    body += [
        "x_ = tl.load(x + tl.load(places + i) * D + d, mask=d < D, other=0.0).to(tl.float32)",
        "v = (x_ * tl.load(factor + i * step).to(tl.float32) if FACTOR else x_) - shift",
        *inner.write(s.inversion),
        f"strength = weight / count * tl.load(norm{' + tl.minimum(d, D - 1)' * held})",
        *_line(s, [*(f"strength * ({inner[e]})" for e in by), "0.0", f"({inner[loss]}) / count"], held),
    ]
    return f"""
@triton.jit(do_not_specialize=["step", "blocks", "line", "weight", "count"])
def inversion(
    norm, partial, x, factor, places, starts, ends, col, edge, {_tensors(s, centred)}, D, step, blocks, line, weight,
    count,
    COL: tl.constexpr, EDGE: tl.constexpr, FACTOR: tl.constexpr, BR: tl.constexpr, BE: tl.constexpr, BD: tl.constexpr,
):
    across = tl.cdiv(D, BD)
    d = tl.program_id(0) % across * BD + tl.arange(0, BD)[None, :]
    i = (tl.program_id(0) // across).to(tl.int64)
    first = tl.load(starts + i) + tl.zeros([1, 1], tl.int64)
    start, end = first + tl.arange(0, BE)[:, None], tl.load(ends + i)
    longest = tl.max(end - first)
    n = tl.maximum(longest, 1).to(tl.float32)
{head}{_lines(body, 4)}"""
