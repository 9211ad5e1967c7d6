"""The loops of the kernels for a CPU, as C++ source: over the rows, and over the elements of one for their sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .c_writer import lines_of, vector
from .expression import PARAMETER, ROW, Expression, Writer
from .sections import Sections

__all__ = ["ALL", "ROW_HEAD", "SHORT", "load_parameters", "mean_of_row", "over_rows", "sums_of_row"]

SHORT = 32  # elements of a row whose dear values are kept from the sums to the gradients: they fit the nearest cache


ALL = "  const I row_a = first_row, row_b = last_row, d_a = 0, d_b = D;"


ROW_HEAD = """    const I start = ptr[row], end = ptr[row + 1];
    const V n = splat((R)(end - start)), log_n = log_of(end - start);"""


def load_parameters(s: Sections, writer: Writer, outputs: list[Expression], centred: bool) -> list[str]:
    """Loads the parameters and computes what depends on them alone."""
    lines = [f"const F p{i} = parameter(params, {i}, D, d, k);" for i in range(s.recipe.parameters)]
    lines += [f"const F beta = parameter(params, {s.recipe.parameters}, D, d, k);"] if centred else []
    return lines + writer.write(outputs, PARAMETER)


def over_rows(
    held: bool, row: str, body: str, head: Sequence[str] = (), begin: str = "", between: str = "", end: str = ""
) -> str:
    """All rows, and in each all features W at a time, between what comes before and after them: with parameters of
    their own, the features are the outer loop, so that these are loaded once.

    Arguments:
        row: What begins a row.
        body: What is done in a row for W features, from d on, of which k are there.
        head: Loads the parameters.
        begin: What comes before all rows.
        between: What comes after a row.
        end: What comes after all rows.
    """
    features = "for (I d = d_a; d < d_b; d += W) {\n  const I k = min((I)W, D - d);"
    before = f"{lines_of(head, 2)}\n{begin}"
    if held:
        return f"""  {features}
{before}
  for (I row = row_a; row < row_b; row++) {{
{row}
    {{
{body}
    }}
{between}
  }}
{end}
  }}"""
    return f"""  const I d = 0, k = 0;
{before}
  for (I row = row_a; row < row_b; row++) {{
{row}
    {features}
{body}
    }}
{between}
  }}
{end}"""


def mean_of_row(centred: bool) -> str:
    if not centred:
        return "      const V mu = {}, shift = {};"
    # In float64, as the plain path: x − β·μ may be the small rest of two large numbers.
    return """      Wide whole = {};
      for (I e = start; e < end; e++) add(whole, load(x + PLACE(e) * D + d, k) * FACTOR(e));
      const V mu = mean(whole, end - start);
      const V shift = beta * mu;"""


def sums_of_row(
    s: Sections,
    writer: Writer,
    centred: bool,
    back: bool = False,
    with_slopes: bool = False,
    keep: Sequence[Expression] = (),
) -> str:
    """The sums of a row, in scaled form where that is needed; `scaled` says whether.

    Arguments:
        back: Whether gradients follow, which the elements share that reach the largest term.
        with_slopes: Whether the sums of the slopes of the terms, ∂t/∂v, are taken too.
        keep: What is kept for the gradients of the elements of a short row.
    """
    if s.largest:
        return f"{mean_of_row(centred)}\n{_largest(s, writer, back, with_slopes)}\n      const bool scaled = false;"
    slopes = s.slopes(s.terms) if with_slopes else []
    sums = _named(s.terms, slopes)
    text = f"{mean_of_row(centred)}\n      V {', '.join(sums)};\n"
    text += lines_of(writer.write(sums.values(), ROW), 6) + "\n"
    if centred or not s.tabled:
        text += _sums(writer, sums, 6, keep)
    else:
        known, new = _table_sums(len(s.t)), _sums(writer, sums, 8, keep)
        text += f"      if (GATHER && table) {{\n{known}\n      }} else {{\n{new}\n      }}"
    if s.overflow is None:
        return text + "\n      const bool scaled = false;"
    test = writer.fork()
    lines = [f"V {', '.join(f'h{i} = {{}}' for i in range(len(s.h)))};", *test.write([s.overflow])]
    lines += [f"const M over = {vector(test, s.overflow)} != 0.0f;", "const bool scaled = any(over, k);"]
    lines += ["if (scaled) {"] + [f"  const V {name}u = {name};" for name in sums]
    text += "\n" + lines_of(lines, 6) + "\n" + RANGE + "\n"
    inner = test.fork()
    lines = inner.write(s.scales)
    lines += [f"h{i} = sel(over, {vector(inner, h)}, V{{}});" for i, h in enumerate(s.scales)]
    slopes = s.slopes(s.scaled_terms) if with_slopes else []
    lines += inner.write([*s.scaled_terms, *slopes], ROW)
    text += lines_of(lines, 8) + "\n" + _sums(inner, _named(s.scaled_terms, slopes), 8) + "\n"
    return text + lines_of([f"{name} = sel(over, {name}, {name}u);" for name in sums], 8) + "\n      }"


def _named(terms: list[Expression], slopes: list[Expression]) -> dict[str, Expression]:
    return {f"T{i}": t for i, t in enumerate(terms)} | {f"S{i}": t for i, t in enumerate(slopes)}


V_OF_ELEMENT = "const V v = load(x + PLACE(e) * D + d, k) * FACTOR(e) - shift;"


def _sums(writer: Writer, sums: Mapping[str, Expression], indent: int, keep: Sequence[Expression] = ()) -> str:
    """The loop over the elements that takes sums."""
    inner = writer.fork()
    body = inner.write(sums.values())
    lines = [
        " ".join(f"{name} = V{{}};" for name in sums),
        "for (I b = start; b < end; b += BLOCK) {",
        "  " + " ".join(f"V part{name} = {{}};" for name in sums),
        "  for (I e = b; e < min(b + BLOCK, end); e++) {",
        f"    {V_OF_ELEMENT}",
        *(f"    {line}" for line in body),
        *(f"    if (short_row) kept[(e - start) * {len(keep)} + {j}] = {inner[e]};" for j, e in enumerate(keep)),
        "    " + " ".join(f"part{name} += {vector(inner, e)};" for name, e in sums.items()),
        "  }",
        "  " + " ".join(f"{name} += part{name};" for name in sums),
        "}",
    ]
    return lines_of(lines, indent)


def _largest(s: Sections, writer: Writer, back: bool, with_slopes: bool) -> str:
    """The largest term in place of the sum, and how many elements reach it."""
    inner = writer.fork()
    lines = [
        "V T0 = splat(-__builtin_inff());",
        "for (I e = start; e < end; e++) {",
        f"  {V_OF_ELEMENT}",
        *(f"  {line}" for line in inner.write(s.terms)),
        f"  T0 = larger(T0, {vector(inner, s.terms[0])});",
        "}",
    ]
    if not back:
        return lines_of(lines, 6)
    sums = {"ties": s.tie} | ({"S0": s.slopes(s.terms)[0]} if with_slopes else {})
    declared = f"      V {', '.join(sums)};"
    text = f"{lines_of(lines, 6)}\n{declared}\n{_sums(writer, sums, 6)}\n"
    return text + "      ties = max_(ties, splat(1.0f));  // of a set with NaN there are none"


def _table_sums(count: int) -> str:
    """The same where the terms of all nodes have been computed beforehand."""
    lines = [
        " ".join(f"T{i} = V{{}};" for i in range(count)),
        "for (I b = start; b < end; b += BLOCK) {",
        "  " + " ".join(f"V part{i} = {{}};" for i in range(count)),
        "  for (I e = b; e < min(b + BLOCK, end); e++) {",
        f"    const R* from = table + PLACE(e) * {count} * D + d;",
        "    " + " ".join(f"part{i} += load(from + {i} * D, k);" for i in range(count)),
        "  }",
        "  " + " ".join(f"T{i} += part{i};" for i in range(count)),
        "}",
    ]
    return lines_of(lines, 8)


RANGE = """        V low = splat(3e38f), high = splat(-3e38f), least = splat(3e38f);
        for (I e = start; e < end; e++) {
          const V v = load(x + PLACE(e) * D + d, k) * FACTOR(e) - shift;
          low = min_(low, v); high = max_(high, v); least = min_(least, abs_(v));
        }"""
