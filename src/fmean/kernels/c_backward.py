"""The kernels for a CPU that go back from the rows to elements and parameters, as C++ source."""

from __future__ import annotations

from collections.abc import Sequence

from .c_rows import ALL, ROW_HEAD, SHORT, load_parameters, over_rows, sums_of_row
from .c_writer import c_writer, lines_of, vector
from .expression import PARAMETER, ROW, Expression, Writer, variable
from .sections import Sections

__all__ = ["accumulate", "backward_kernel", "planes_of", "put"]

# Pieces of rows; or, where elements of several rows are the same node, all rows and pieces of features: no two threads
# then add to the same place, and the order in which it is added to is always the same.
RANGES = """  const bool adds = all_rows > 0;
  const I row_a = adds ? 0 : first_row, row_b = adds ? all_rows : last_row;
  const I d_a = adds ? first_row * W : 0, d_b = adds ? min(last_row * W, D) : D;
#define OF_FACTOR(e) (dfactor + (adds ? d / W * edges : 0) + (edge ? edge[e] : (e)))"""


NOTHING_BY_X = """  float* const dx = nullptr;
  float* const dfactor = nullptr;
  const bool adds = false;
#define OF_FACTOR(e) dfactor"""


FLUSH = "    if (row % 64 == 0) FLUSH"


# Once more over the row, for what comes through the mean: it is in the cache, and this is less work than to know the
# sum of ∂L/∂v before.
SHARE = """for (I e = start; e < end && (dx || (WEIGHTED && dfactor)); e++) {
  float* to = dx + PLACE(e) * D + d;
  if (dx) store(to, load(to, k) - share * FACTOR(e), k);
  if (WEIGHTED && dfactor) *OF_FACTOR(e) -= sum(sel(inside, share * load(x + PLACE(e) * D + d, k), V{}));
}"""


def backward_kernel(s: Sections, centred: bool, held: bool, name: str) -> str:
    """One of three kernels that go back from the rows to the parameters, and beside that

    - `backward`: write ∂L/∂x of every element;
    - `backward_rows`: write what each row hands to its elements: ∂L/∂T, shift, share, scales;
    - `squares`: know ∂L/∂y of L = Σ(y − target)² themselves. y is never written, and need not be computed before.
    """
    gather, squares = name == "backward_rows", name == "squares"
    writer = c_writer(s)
    head = load_parameters(s, writer, s.outputs, centred)
    declare, add, end = accumulate(s, 3 if squares else 2)
    keep = [] if gather else s.dear
    row = sums_of_row(s, writer, centred, True, centred and gather, keep)
    lines = []
    if squares:
        of = len(s.roots)
        lines += [
            *writer.write([s.y]),
            f"const V error = sel(inside, {writer[s.y]} - load(target + row * D + d, k), V{{}});",
        ]
        lines += ["const V g = 2.0f * error;", f"lanes[{of + 1}] += abs_(g);", f"lanes[{of + 2}] += error * error;"]
    lines += writer.write(s.back)
    lines += [f"const V G{i} = {vector(writer, e)};" for i, e in enumerate(s.back[: len(s.t)])]
    sums = [f"V b{i} = {vector(writer, e)};" for i, e in enumerate(s.back[len(s.t) :])]
    lines += sums
    of_beta = [f"lanes[{len(s.roots)}] -= sel(inside, mu * total, V{{}});", "const V share = beta * total / n;"]
    if centred and gather:
        lines.append("const V total = " + " + ".join(f"G{i} * S{i}" for i in range(len(s.t))) + ";")
        lines += of_beta
    if gather:
        planes = planes_of(s, centred)
        lines += [f"store(state + (row * {len(planes)} + {i}) * D + d, {p}, k);" for i, p in enumerate(planes)]
        lines.append("flags[row * ((D + W - 1) / W) + d / W] = scaled;")
        loop = ""
    else:
        lines.append("V total = {};")
        kept, new = (_elements(writer, s.back_element, 8, nodes) for nodes in (keep, []))
        loop = f"      if (short_row) {{\n{kept}\n      }} else {{\n{new}\n      }}"
        if s.h:
            scaled = _elements(writer, s.back_scaled_element, 8)
            loop = f"      if (scaled) {{\n{scaled}\n      }} else {{\n{loop}\n      }}"
        if centred:
            loop += "\n" + lines_of([*of_beta, *SHARE.splitlines()], 6)
    first, extra = (
        "grad",
        {
            "backward": "float* dx, float* dfactor, I edges, I all_rows, ",
            "backward_rows": "R* state, unsigned char* flags, ",
            "squares": "",
        }[name],
    )
    given = f"""      const V g = load(grad + row * D + d, k);
      lanes[{len(s.roots) + 1}] += abs_(g);"""
    ranges = {"backward": RANGES, "backward_rows": ALL, "squares": f"{ALL}\n{NOTHING_BY_X}"}[name]
    empty = "continue;"
    if squares:  # of an empty set y is 0
        first, given, of = "target", "", len(s.roots)
        known = f"lanes[{of + 1}] += 2.0f * abs_(t); lanes[{of + 2}] += t * t;"
        empty = f"{{ const V t = load(target + row * D + d, k); {known} continue; }}"
    body = f"""      const M inside = first(k);
{given}
      if (start == end) {empty}
      const bool short_row = end - start <= {SHORT} && !(GATHER && table);
{row}
{lines_of(lines, 6)}
{loop}
      {add}"""
    begin = f"{declare}  V kept[{max(1, SHORT * len(keep))}];"
    return f"""
extern "C" void {name}(const float* {first}, const float* x, const float* factor, const I* ptr, const I* col,
    const I* edge, const R* table, {extra}float* partial, const float* params, I D, I first_row, I last_row) {{
{ranges}
{over_rows(held, ROW_HEAD, body, head, begin, FLUSH, end)}
}}
"""


def _elements(writer: Writer, outputs: list[Expression], indent: int, keep: Sequence[Expression] = ()) -> str:
    """The loop over the elements that writes ∂L/∂x of each, or adds to it, and their total."""
    writer = writer.fork()
    lines = writer.write(outputs, ROW)
    inner = writer.fork()
    inner.names |= {node: f"kept{j}" for j, node in enumerate(keep)}
    body = inner.write(outputs)
    adds = [i for i, e in enumerate(outputs[1:]) if e.op != "const"]
    lines += [
        "for (I b = start; b < end; b += BLOCK) {",
        "  V dv_sum = {}; " + " ".join(f"V part{i} = {{}};" for i in adds),
        "  for (I e = b; e < min(b + BLOCK, end); e++) {",
        "    const V xe = load(x + PLACE(e) * D + d, k);",
        "    const float w = FACTOR(e);",
        "    const V v = xe * w - shift;",
        *(f"    const V kept{j} = kept[(e - start) * {len(keep)} + {j}];" for j in range(len(keep))),
        *(f"    {line}" for line in body),
        *(f"    part{i} += {vector(inner, outputs[1 + i])};" for i in adds),
        f"    const V dv = bounded({vector(inner, outputs[0])});",
        "    dv_sum += dv;",
        "    float* to = dx + PLACE(e) * D + d;",
        "    if (dx) store(to, adds ? load(to, k) + dv * w : dv * w, k);",
        "    if (WEIGHTED && dfactor) *OF_FACTOR(e) += sum(sel(inside, dv * xe, V{}));",
        "  }",
        "  total += dv_sum; " + " ".join(f"b{i} += part{i};" for i in adds),
        "}",
    ]
    return lines_of(lines, indent)


def planes_of(s: Sections, centred: bool) -> list[str]:
    """What a row hands to its elements in a layer."""
    return [*s.handed, *(["shift", "share"] if centred else []), *(f"h{i}" for i in range(len(s.h)))]


def accumulate(s: Sections, more: int = 2) -> tuple[str, str, str]:
    """Sums of the gradients: declared before all rows, added to after each, and written as those of the parameters.

    Behind them come so many `more`: the gradient of β, Σ|∂L/∂y|, and the sum of squares where there is one.
    """
    roots, count = s.roots, len(s.roots) + more
    declare = f"  A sums[{count}] = {{}};\n  V lanes[{count}] = {{}};\n"
    add = " ".join(f"lanes[{i}] += sel(inside, b{i}, V{{}});" for i in range(len(roots)))
    flush = f"for (int i = 0; i < {count}; i++) {{ sums[i] += total_of(lanes[i]); lanes[i] = V{{}}; }}"
    declare += f"#define FLUSH {flush}\n"
    sums = {root: variable(f"a{i}", PARAMETER) for i, root in enumerate(roots)}
    by = s.by_parameters(dict(sums))
    writer = c_writer(s)
    # The parameters again, for the chain from the roots to them.
    lines = [f"const F a{i} = narrow(sums[{i}]);" for i in range(len(roots))] + writer.write(by)
    lines += [put(i, writer[e]) for i, e in enumerate(by)]
    lines += [put(len(by) + i, f"narrow(sums[{len(roots) + i}])") for i in range(more)]
    return declare, add, "  FLUSH\n#undef FLUSH\n  {\n" + lines_of(lines, 4) + "\n  }"


def put(i: int | str, value: str) -> str:
    return f"put(partial, {i}, F_({value}), D, d, k);"
