"""The kernels for a CPU, as C++ source: vectors of features, by the compilers' own vector types.

One row (a set) after another, and of each W features at a time: the sums, the mean and the gradients of these stay in
registers while the elements of the row pass by. Backward does the same again instead of keeping anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .c_backward import backward_kernel, put
from .c_numbers import DOUBLE, FLOAT
from .c_prelude import HELD, PRELUDE, SHARED
from .c_rows import ALL, ROW_HEAD, load_parameters, mean_of_row, over_rows, sums_of_row
from .c_sources import sources_kernel
from .c_writer import c_writer, lines_of, vector
from .sections import Sections

__all__ = ["Kind", "c_source"]

HELPERS = "INLINE I min(I a, I b) { return a < b ? a : b; }\n"


class Kind(NamedTuple):
    """What is fixed when kernels are compiled."""

    centred: bool
    """Whether there is a β."""
    width: int
    """How many features are computed at once, W."""
    held: bool
    """Whether every feature holds parameters of its own, ``[parameters, D]``."""
    gather: bool
    """Whether the element at position e is at another place in x, ``col[e]``."""
    weighted: bool
    """Whether it is multiplied by a factor."""
    squares: bool = False
    """Whether these are the kernels of Σ(y − target)²."""
    learned: bool = True
    """Whether parameters have gradients. Without, these are kernels of backward alone, which of a plain sum do not even
    look at x: the compiler sees that nothing comes of it."""


def c_source(sections: Sections, kind: Kind) -> str:
    """The kernels of a recipe."""
    centred, held = kind.centred, kind.held
    tabled = kind.gather and not centred and sections.tabled
    if kind.squares:
        kernels = [HELPERS, backward_kernel(sections, centred, held, "squares")]
        kernels += [_terms(sections, held)] if tabled else []
    else:
        kernels = [HELPERS, backward_kernel(sections, centred, held, "backward")]
        if kind.gather:  # x are nodes, each an element of several rows
            kernels.append(backward_kernel(sections, centred, held, "backward_rows"))
            kernels.append(sources_kernel(sections, centred, held))
        if kind.learned:
            kernels.append(_forward(sections, centred, held))
            kernels += [_terms(sections, held)] if tabled else []
            kernels += [_inversion(sections, centred, held)] if sections.recipe.approximate else []
    columns = f"{sections.recipe.parameters + 2 + kind.squares}{' * D' * held}"
    fixed = f"#define W {kind.width}\n#define GATHER {kind.gather:d}\n#define WEIGHTED {kind.weighted:d}\n"
    numbers = DOUBLE if sections.recipe.double_terms else FLOAT
    prelude = f"{fixed}{numbers.types}{PRELUDE}{numbers.functions}{HELD if held else SHARED}"
    return f"{prelude}\n{_parallel(chr(10).join(kernels), columns)}"


def _parallel(kernels: str, columns: str) -> str:
    """Every kernel takes a piece of rows; beside each, one that runs it over pieces on the threads that torch has."""

    def both(match: re.Match[str]) -> str:
        name, arguments = match[1], " ".join(match[2].split())
        names = [argument.split()[-1].lstrip("*") for argument in arguments.split(",")]
        given = ", ".join(f"partial + i * {columns}" if n == "partial" else n for n in names)
        return f"""static void {name}_piece({arguments}, I first_row, I last_row);
extern "C" void {name}({arguments}, const I* bounds, I pieces, I threads) {{
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (I i = 0; i < pieces; i++) if (bounds[i] < bounds[i + 1]) {name}_piece({given}, bounds[i], bounds[i + 1]);
}}
static void {name}_piece({arguments}, I first_row, I last_row) {{"""

    return re.sub(r'extern "C" void (\w+)\(([^)]*?), I first_row, I last_row\) \{', both, kernels)


def _forward(s: Sections, centred: bool, held: bool) -> str:
    writer = c_writer(s)
    head = load_parameters(s, writer, [*s.terms, *s.scaled_terms, s.y, *s.scales], centred)
    row = sums_of_row(s, writer, centred)
    last = writer.write([s.y])
    body = f"""      if (start == end) {{ store(y + row * D + d, V{{}}, k); continue; }}
{row}
{lines_of(last, 6)}
      store(y + row * D + d, {writer[s.y]}, k);"""
    return f"""
extern "C" void forward(const float* x, const float* factor, const I* ptr, const I* col, const I* edge,
    const R* table, float* y, const float* params, I D, I first_row, I last_row) {{
{ALL}
{over_rows(held, ROW_HEAD, body, head)}
}}
"""


def _terms(s: Sections, held: bool) -> str:
    """The terms of every node: with β = 0 they are the same in each row, and need not be computed again for it."""
    writer = c_writer(s)
    head = load_parameters(s, writer, s.terms, False)
    body = writer.write(s.terms)
    stores = [
        f"store(table + (row * {len(s.t)} + {i}) * D + d, {vector(writer, t)}, k);" for i, t in enumerate(s.terms)
    ]
    all_lines = lines_of(["const V v = load(x + row * D + d, k);", *body, *stores], 6)
    return f"""
extern "C" void node_terms(const float* x, R* table, const float* params, I D, I first_row, I last_row) {{
{ALL}
{over_rows(held, "", all_lines, head)}
}}
"""


def _inversion(s: Sections, centred: bool, held: bool) -> str:
    """Σ(|f⁻¹(f(v))| − |v|)² over every step-th element, and its gradient by the parameters."""
    writer = c_writer(s)
    head = load_parameters(s, writer, s.inversion, centred)
    inner = writer.fork()
    body = inner.write(s.inversion)
    adds = [f"sums[{i}] += total_of(sel(inside, {vector(inner, e)}, V{{}}));" for i, e in enumerate(s.inversion)]
    row = """    const I of = rows[row], start = ptr[of], end = ptr[of + 1];
    const V n = splat((float)(end - start));"""
    of_row = f"""      const M inside = first(k);
{mean_of_row(centred)}
      const V v = load(x + places[row] * D + d, k) * (WEIGHTED ? factor[row * step] : 1.0f) - shift;
{lines_of(body, 6)}
      {" ".join(adds)}"""
    begin, count = f"  A sums[{len(s.inversion)}] = {{}};", len(s.inversion)
    end = f"  for (int i = 0; i < {count}; i++) {put('i', 'narrow(sums[i])')}"
    return f"""
extern "C" void inversion(const float* x, const float* factor, const I* ptr, const I* col, const I* edge,
    const I* places, const I* rows, I step, float* partial, const float* params, I D, I first_row, I last_row) {{
{ALL}
{over_rows(held, row, of_row, head, begin, "", end)}
}}
"""
