"""The kernels for a CPU, as C++ source: vectors of features, by the compilers' own vector types.

One row (a set) after another, and of each W features at a time: the sums, the mean and the gradients of these stay in
registers while the elements of the row pass by. Backward does the same again instead of keeping anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from .expression import ELEMENT, PARAMETER, ROW, Expression, Writer, variable
from .sections import Sections

__all__ = ["c_source"]

PRELUDE = r"""
typedef long long I;
typedef float V __attribute__((vector_size(4 * W)));
typedef int M __attribute__((vector_size(4 * W)));
typedef double VD __attribute__((vector_size(8 * W)));
#define INLINE static inline __attribute__((always_inline))

INLINE V splat(float a) { return V{} + a; }
INLINE V splat(V a) { return a; }
INLINE V sel(M m, V a, V b) { return m ? a : b; }
INLINE float sel(bool m, float a, float b) { return m ? a : b; }
INLINE V sel(bool m, V a, V b) { return m ? a : b; }
// A NaN as the first argument comes out.
INLINE V min_(V a, V b) { return b < a ? b : a; }
INLINE V max_(V a, V b) { return b > a ? b : a; }
INLINE float min_(float a, float b) { return b < a ? b : a; }
INLINE float max_(float a, float b) { return b > a ? b : a; }
INLINE V abs_(V a) { return (V)((M)a & 0x7fffffff); }
INLINE float abs_(float a) { return __builtin_fabsf(a); }
INLINE float exp2_(float a) { return __builtin_exp2f(a); }
INLINE float log2_(float a) { return __builtin_log2f(a); }
INLINE float sqrt_(float a) { return __builtin_sqrtf(a); }
INLINE V sqrt_(V a) { for (int i = 0; i < W; i++) a[i] = __builtin_sqrtf(a[i]); return a; }

// 2^x = 2^k * e^(r*log(2)) with |r| <= 1/2; 0 below the least normal number, infinity from 2^127.5 on.
INLINE V exp2_(V x) {
  x = x > 128.0f ? splat(128.0f) : x;
  x = x < -127.0f ? splat(-127.0f) : x;
  V k = (x + 12582912.0f) - 12582912.0f, r = x - k;
  V e = r * 1.535336188319500e-4f + 1.339887440266574e-3f;
  e = e * r + 9.618437357674640e-3f;
  e = e * r + 5.550332471162809e-2f;
  e = e * r + 2.402264791363012e-1f;
  e = e * r + 6.931472028550421e-1f;
  e = e * r + 1.0f;
  return e * (V)((__builtin_convertvector(k, M) + 127) << 23);
}

// log2 x = k + log2 m with m in [sqrt(1/2), sqrt(2)); log m by the series of 2*atanh((m-1)/(m+1)).
// Of normal positive numbers, infinity and NaN: no formula asks for another.
INLINE V log2_(V x) {
  M i = (M)x, k = (i >> 23) - 127;
  V m = (V)((i & 0x7fffff) | 0x3f800000);
  M big = m > 1.41421356f;
  m = big ? m * 0.5f : m;
  V s = (m - 1.0f) / (m + 1.0f), z = s * s;
  V l = (m - 1.0f) - s * ((m - 1.0f) - z * (0.66666667f + z * (0.4f + z * (0.285714287f + z * 0.24279079f))));
  l = l * 1.44269504f + __builtin_convertvector(k - big, V);
  return x <= 3.4028235e38f ? l : x;
}

INLINE V load(const float* p, I k) {
  V v = {};
  if (k == W) __builtin_memcpy(&v, p, sizeof v); else for (I i = 0; i < k; i++) v[i] = p[i];
  return v;
}
INLINE void store(float* p, V v, I k) {
  if (k == W) __builtin_memcpy(p, &v, sizeof v); else for (I i = 0; i < k; i++) p[i] = v[i];
}
INLINE M first(I k) { M m = {}; for (int i = 0; i < W; i++) m[i] = i < k ? -1 : 0; return m; }
INLINE float sum(V a) { double s = 0; for (int i = 0; i < W; i++) s += a[i]; return s; }
INLINE bool any(M a, I k) { bool is = false; for (I i = 0; i < k; i++) is |= a[i] != 0; return is; }
#define PLACE(e) (col ? col[e] : (e))
#define FACTOR(e) (factor ? factor[edge ? edge[e] : (e)] : 1.0f)
#define BLOCK 256  // so many elements are summed on their own: the error grows with the blocks, not with the elements
"""


class CWriter(Writer):
    def constant(self, value: float) -> str:
        if math.isinf(value):
            return f"({'-' * (value < 0)}__builtin_inff())"
        return f"({value!r}f)"

    def line(self, node: Expression, name: str, value: str) -> str:
        truth = node.op in ("<", ">", "==", "&", "|")
        kind = ("bool" if truth else "float") if node.level == PARAMETER else "M" if truth else "V"
        return f"const {kind} {name} = {value};"

    def value(self, node: Expression, args: list[str]) -> str:
        if node.op in ("min", "max", "where", "exp2", "log2", "sqrt", "abs"):
            if node.level > PARAMETER:
                numbers = node.args[1:] if node.op == "where" else node.args
                first = len(args) - len(numbers)
                splats = [a if e.level else f"splat({a})" for a, e in zip(args[first:], numbers, strict=True)]
                args = [*args[:first], *splats]
            name = {"where": "sel"}.get(node.op, f"{node.op}_")
            return f"{name}({', '.join(args)})"
        if node.op == "wide":
            return args[0]
        if node.op in ("neg", "reciprocal"):
            return f"-{args[0]}" if node.op == "neg" else f"1.0f / {args[0]}"
        return f"{args[0]} {node.op} {args[1]}"


SHORT = 32  # elements of a row whose dear values are kept from the sums to the gradients: they fit the nearest cache


def c_source(sections: Sections, centred: bool, width: int) -> str:
    kernels = "\n".join(
        [
            HELPERS,
            *([] if centred else [_terms(sections)]),
            _forward(sections, centred),
            _backward(sections, centred, gather=False),
            _backward(sections, centred, gather=True),
            _sources(sections, centred),
            *([_inversion(sections, centred)] if sections.recipe.approximate else []),
        ]
    )
    return f"#define W {width}\n{PRELUDE}\n{_parallel(kernels, sections.recipe.parameters + 2)}"


def _parallel(kernels: str, columns: int) -> str:
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


def _lines(lines: Iterable[str], indent: int) -> str:
    return "\n".join(" " * indent + line for line in lines)


def _parameters(s: Sections, writer: Writer, outputs: list[Expression], centred: bool) -> list[str]:
    """Loads the parameters and computes what depends on them alone."""
    lines = [f"const float p{i} = params[{i}];" for i in range(s.recipe.parameters)]
    lines += [f"const float beta = params[{s.recipe.parameters}];"] if centred else []
    return lines + writer.write(outputs, PARAMETER)


def _mean(centred: bool) -> str:
    if not centred:
        return "      const V mu = {}, shift = {};"
    # In float64, as the plain path: x − β·μ may be the small rest of two large numbers.
    return """      VD whole = {};
      for (I e = start; e < end; e++) whole += __builtin_convertvector(load(x + PLACE(e) * D + d, k) * FACTOR(e), VD);
      const V mu = __builtin_convertvector(whole / (double)(end - start), V);
      const V shift = beta * mu;"""


def _sums(
    writer: Writer, terms: list[Expression], slopes: list[Expression], indent: int, keep: Sequence[Expression] = ()
) -> str:
    """The loop over the elements that takes the sums of the terms (T) and of their slopes (S)."""
    inner = writer.fork()
    body = inner.write([*terms, *slopes])
    sums = [("T", i, _vector(inner, t)) for i, t in enumerate(terms)]
    sums += [("S", i, _vector(inner, t)) for i, t in enumerate(slopes)]
    lines = [
        " ".join(f"{a}{i} = V{{}};" for a, i, _ in sums),
        "for (I b = start; b < end; b += BLOCK) {",
        "  " + " ".join(f"V part{a}{i} = {{}};" for a, i, _ in sums),
        "  for (I e = b; e < min(b + BLOCK, end); e++) {",
        "    const V v = load(x + PLACE(e) * D + d, k) * FACTOR(e) - shift;",
        *(f"    {line}" for line in body),
        *(f"    if (short_row) kept[(e - start) * {len(keep)} + {j}] = {inner[e]};" for j, e in enumerate(keep)),
        "    " + " ".join(f"part{a}{i} += {value};" for a, i, value in sums),
        "  }",
        "  " + " ".join(f"{a}{i} += part{a}{i};" for a, i, _ in sums),
        "}",
    ]
    return _lines(lines, indent)


def _table_sums(count: int) -> str:
    """The same where the terms of all nodes have been computed beforehand."""
    lines = [
        " ".join(f"T{i} = V{{}};" for i in range(count)),
        "for (I b = start; b < end; b += BLOCK) {",
        "  " + " ".join(f"V part{i} = {{}};" for i in range(count)),
        "  for (I e = b; e < min(b + BLOCK, end); e++) {",
        f"    const float* from = table + PLACE(e) * {count} * D + d;",
        "    " + " ".join(f"part{i} += load(from + {i} * D, k);" for i in range(count)),
        "  }",
        "  " + " ".join(f"T{i} += part{i};" for i in range(count)),
        "}",
    ]
    return _lines(lines, 8)


RANGE = """        V low = splat(3e38f), high = splat(-3e38f), least = splat(3e38f);
        for (I e = start; e < end; e++) {
          const V v = load(x + PLACE(e) * D + d, k) * FACTOR(e) - shift;
          low = min_(low, v); high = max_(high, v); least = min_(least, abs_(v));
        }"""


def _row(s: Sections, writer: Writer, centred: bool, with_slopes: bool, keep: Sequence[Expression] = ()) -> str:
    """The sums of a row, in scaled form where that is needed; `scaled` says whether."""
    slopes = s.slopes(s.terms) if with_slopes else []
    names = [f"T{i}" for i in range(len(s.t))] + [f"S{i}" for i in range(len(slopes))]
    text = f"{_mean(centred)}\n      V {', '.join(names)};\n"
    text += _lines(writer.write([*s.terms, *slopes], ROW), 6) + "\n"
    if centred:
        text += _sums(writer, s.terms, slopes, 6, keep)
    else:
        known, new = _table_sums(len(s.t)), _sums(writer, s.terms, slopes, 8, keep)
        text += f"      if (table) {{\n{known}\n      }} else {{\n{new}\n      }}"
    if s.overflow is None:
        return text + "\n      const bool scaled = false;"
    test = writer.fork()
    lines = [f"V {', '.join(f'h{i} = {{}}' for i in range(len(s.h)))};", *test.write([s.overflow])]
    lines += [f"const M over = {_vector(test, s.overflow)} != 0.0f;", "const bool scaled = any(over, k);"]
    lines += ["if (scaled) {"] + [f"  const V {name}u = {name};" for name in names]
    text += "\n" + _lines(lines, 6) + "\n" + RANGE + "\n"
    inner = test.fork()
    lines = inner.write(s.scales)
    lines += [f"h{i} = sel(over, {_vector(inner, h)}, V{{}});" for i, h in enumerate(s.scales)]
    slopes = s.slopes(s.scaled_terms) if with_slopes else []
    lines += inner.write([*s.scaled_terms, *slopes], ROW)
    text += _lines(lines, 8) + "\n" + _sums(inner, s.scaled_terms, slopes, 8) + "\n"
    return text + _lines([f"{name} = sel(over, {name}, {name}u);" for name in names], 8) + "\n      }"


ROW_HEAD = """    const I start = ptr[row], end = ptr[row + 1];
    const V n = splat((float)(end - start)), log_n = splat(__builtin_logf((float)(end - start)));
    for (I d = 0; d < D; d += W) {
      const I k = min((I)W, D - d);"""

# Pieces of rows; or, where elements of several rows are the same node, all rows and pieces of features: no two threads
# then add to the same place, and the order in which it is added to is always the same.
RANGES = """  const bool adds = all_rows > 0;
  const I row_a = adds ? 0 : first_row, row_b = adds ? all_rows : last_row;
  const I d_a = adds ? first_row * W : 0, d_b = adds ? min(last_row * W, D) : D;
#define OF_FACTOR(e) (dfactor + (adds ? d / W * edges : 0) + (edge ? edge[e] : (e)))"""

HELPERS = "INLINE I min(I a, I b) { return a < b ? a : b; }\n"


def _forward(s: Sections, centred: bool) -> str:
    writer = CWriter()
    head = _parameters(s, writer, [*s.terms, *s.scaled_terms, s.y, *s.scales], centred)
    row = _row(s, writer, centred, with_slopes=False)
    last = writer.write([s.y])
    return f"""
extern "C" void forward(const float* x, const float* factor, const I* ptr, const I* col, const I* edge,
    const float* table, float* y, const float* params, I D, I first_row, I last_row) {{
{_lines(head, 2)}
  for (I row = first_row; row < last_row; row++) {{
{ROW_HEAD}
      if (start == end) {{ store(y + row * D + d, V{{}}, k); continue; }}
{row}
{_lines(last, 6)}
      store(y + row * D + d, {writer[s.y]}, k);
    }}
  }}
}}
"""


def _terms(s: Sections) -> str:
    """The terms of every node: with β = 0 they are the same in each row, and need not be computed again for it."""
    writer = CWriter()
    head = _parameters(s, writer, s.terms, False)
    body = writer.write(s.terms)
    stores = [
        f"store(table + (row * {len(s.t)} + {i}) * D + d, {_vector(writer, t)}, k);" for i, t in enumerate(s.terms)
    ]
    return f"""
extern "C" void node_terms(const float* x, float* table, const float* params, I D, I first_row, I last_row) {{
{_lines(head, 2)}
  for (I row = first_row; row < last_row; row++)
    for (I d = 0; d < D; d += W) {{
      const I k = min((I)W, D - d);
      const V v = load(x + row * D + d, k);
{_lines([*body, *stores], 6)}
    }}
}}
"""


def _accumulate(s: Sections) -> tuple[str, str, str]:
    """Sums of the gradients: declared before all rows, added to after each, and written as those of the parameters."""
    roots = s.roots
    declare = f"  double sums[{len(roots)}] = {{}};\n  V lanes[{len(roots)}] = {{}};\n"
    add = " ".join(f"lanes[{i}] += sel(inside, b{i}, V{{}});" for i in range(len(roots)))
    flush = f"for (int i = 0; i < {len(roots)}; i++) {{ sums[i] += sum(lanes[i]); lanes[i] = V{{}}; }}"
    declare += f"#define FLUSH {flush}\n"
    sums = {root: variable(f"a{i}", PARAMETER) for i, root in enumerate(roots)}
    by = s.by_parameters(dict(sums))
    writer = CWriter()
    # The parameters again, for the chain from the roots to them.
    lines = [f"const float a{i} = sums[{i}];" for i in range(len(roots))] + writer.write(by)
    lines += [f"partial[{i}] = {writer[e]};" for i, e in enumerate(by)]
    return declare, add, "  FLUSH\n#undef FLUSH\n  {\n" + _lines(lines, 4) + "\n  }"


def _backward(s: Sections, centred: bool, gather: bool) -> str:
    """∂L/∂x of every element, or with `gather` what each row hands to its elements: ∂L/∂T, shift, share, scales."""
    writer = CWriter()
    head = _parameters(s, writer, s.outputs, centred)
    declare, add, end = _accumulate(s)
    keep = [] if gather else s.dear
    row = _row(s, writer, centred, with_slopes=centred and gather, keep=keep)
    lines = [*writer.write(s.back)]
    lines += [f"const V G{i} = {_vector(writer, e)};" for i, e in enumerate(s.back[: len(s.t)])]
    sums = [f"V b{i} = {_vector(writer, e)};" for i, e in enumerate(s.back[len(s.t) :])]
    lines += sums
    of_beta = ["beta_sum -= sum(sel(inside, mu * total, V{}));", "const V share = beta * total / n;"]
    if centred and gather:
        lines.append("const V total = " + " + ".join(f"G{i} * S{i}" for i in range(len(s.t))) + ";")
        lines += of_beta
    if gather:
        planes = [*(f"G{i}" for i in range(len(s.t))), *(["shift", "share"] if centred else [])]
        planes += [f"h{i}" for i in range(len(s.h))]
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
            loop += "\n" + _lines([*of_beta, *SHARE.splitlines()], 6)
    name = "backward_rows" if gather else "backward"
    extra = "float* state, unsigned char* flags" if gather else "float* dx, float* dfactor, I edges, I all_rows"
    head_of_row, range_ = ROW_HEAD, "  const I row_a = first_row, row_b = last_row;"
    if not gather:
        head_of_row, range_ = ROW_HEAD.replace("I d = 0; d < D;", "I d = d_a; d < d_b;"), RANGES
    return f"""
extern "C" void {name}(const float* grad, const float* x, const float* factor, const I* ptr, const I* col,
    const I* edge, const float* table, {extra}, float* partial, const float* params, I D, I first_row, I last_row) {{
{_lines(head, 2)}
{declare}{range_}
  double beta_sum = 0, size = 0;
  V kept[{max(1, SHORT * len(keep))}];
  for (I row = row_a; row < row_b; row++) {{
{head_of_row}
      const M inside = first(k);
      const V g = load(grad + row * D + d, k);
      size += sum(abs_(g));
      if (start == end) continue;
      const bool short_row = end - start <= {SHORT} && !table;
{row}
{_lines(lines, 6)}
{loop}
      {add}
    }}
    if (row % 64 == 0) FLUSH
  }}
{end}
  partial[{s.recipe.parameters}] = beta_sum;
  partial[{s.recipe.parameters + 1}] = size;
}}
"""


# Once more over the row, for what comes through the mean: it is in the cache, and this is less work than to know the
# sum of ∂L/∂v before.
SHARE = """for (I e = start; e < end; e++) {
  float* to = dx + PLACE(e) * D + d;
  store(to, load(to, k) - share * FACTOR(e), k);
  if (dfactor) *OF_FACTOR(e) -= sum(sel(inside, share * load(x + PLACE(e) * D + d, k), V{}));
}"""


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
        *(f"    part{i} += {_vector(inner, outputs[1 + i])};" for i in adds),
        f"    const V dv = {_vector(inner, outputs[0])};",
        "    dv_sum += dv;",
        "    float* to = dx + PLACE(e) * D + d;",
        "    store(to, adds ? load(to, k) + dv * w : dv * w, k);",
        "    if (dfactor) *OF_FACTOR(e) += sum(sel(inside, dv * xe, V{}));",
        "  }",
        "  total += dv_sum; " + " ".join(f"b{i} += part{i};" for i in adds),
        "}",
    ]
    return _lines(lines, indent)


def _vector(writer: Writer, e: Expression) -> str:
    return f"splat({writer[e]})"


def _sources(s: Sections, centred: bool) -> str:
    """∂L/∂x of every node, from what the rows it is an element of handed out (the transposed rows)."""
    writer = CWriter()
    head = _parameters(s, writer, [*s.back_element, *s.back_scaled_element], centred)
    declare, add, end = _accumulate(s)
    planes = len(s.t) + 2 * centred + len(s.h)

    def element(outputs: list[Expression], h: bool) -> list[str]:
        inner = writer.fork()
        lines = [f"const V h{i} = load(from + {len(s.t) + 2 * centred + i} * D, k);" for i in range(len(s.h) * h)]
        lines += inner.write(outputs, ELEMENT)
        lines += [f"b{i} += {_vector(inner, e)};" for i, e in enumerate(outputs[1:]) if e.op != "const"]
        return [*lines, f"dv += {_vector(inner, outputs[0])};"]

    body = f"""        {{
{_lines(element(s.back_element, False), 10)}
        }}"""
    once = ""
    if not centred:
        # Without factors v is the same in all rows, and what they hand out can be summed before f is looked at.
        adds = " ".join(f"A{i} += G{i};" for i in range(len(s.t)))
        body = f"if (!factor) {{ once = true; {adds} }} else {body.lstrip()}"
        gs = [f"const V G{i} = A{i};" for i in range(len(s.t))]
        lines = [
            "if (once) {",
            "const V v = xe;",
            "V dv = {};",
            *gs,
            *element(s.back_element, False),
            "dxe += dv;",
            "}",
        ]
        once = _lines(lines, 6)
    if s.h:
        body = f"""        if (flags[t * ((D + W - 1) / W) + d / W]) {{
{_lines(element(s.back_scaled_element, True), 10)}
        }} else {body.lstrip()}"""
    else:
        body = f"        {body.lstrip()}"
    loads = [f"const V G{i} = load(from + {i} * D, k);" for i in range(len(s.t))]
    if centred:
        loads += [f"const V shift = load(from + {len(s.t)} * D, k), share = load(from + {len(s.t) + 1} * D, k);"]
    shift, share = (" - shift", "-share") if centred else ("", "V{}")
    roots = range(len(s.roots))
    return f"""
extern "C" void backward_sources(const float* x, const float* factor, const I* ptr, const I* col, const I* edge,
    const float* state, const unsigned char* flags, float* dx, float* dfactor, float* partial, const float* params,
    I D, I first_row, I last_row) {{
{_lines(head, 2)}
{declare}
  for (I row = first_row; row < last_row; row++) {{
    const I start = ptr[row], end = ptr[row + 1];
    for (I d = 0; d < D; d += W) {{
      const I k = min((I)W, D - d);
      const M inside = first(k);
      const V xe = load(x + row * D + d, k);
      V dxe = {{}};
      bool once = false;
      {" ".join(f"V b{i} = {{}};" for i in roots)}
      {" ".join(f"V A{i} = {{}};" for i in range(len(s.t)))}
      for (I e = start; e < end; e++) {{
        const I t = col[e];
        const float w = FACTOR(e);
        const float* from = state + t * {planes} * D + d;
{_lines(loads, 8)}
        const V v = xe * w{shift};
        V dv = {share};
{body}
        dxe += dv * w;
        if (dfactor) dfactor[edge ? edge[e] : e] += sum(sel(inside, dv * xe, V{{}}));
      }}
{once}
      store(dx + row * D + d, dxe, k);
      {add}
    }}
    if (row % 64 == 0) FLUSH
  }}
{end}
  partial[{s.recipe.parameters}] = partial[{s.recipe.parameters + 1}] = 0;
}}
"""


def _inversion(s: Sections, centred: bool) -> str:
    """Σ(|f⁻¹(f(v))| − |v|)² over every step-th element, and its gradient by the parameters."""
    writer = CWriter()
    head = _parameters(s, writer, s.inversion, centred)
    inner = writer.fork()
    body = inner.write(s.inversion)
    adds = [f"sums[{i}] += sum(sel(inside, {_vector(inner, e)}, V{{}}));" for i, e in enumerate(s.inversion)]
    return f"""
extern "C" void inversion(const float* x, const float* factor, const I* ptr, const I* col, const I* edge,
    const I* places, const I* rows, I step, float* partial, const float* params, I D, I first_row, I last_row) {{
{_lines(head, 2)}
  double sums[{len(s.inversion)}] = {{}};
  for (I i = first_row; i < last_row; i++) {{
    const I row = rows[i], start = ptr[row], end = ptr[row + 1];
    const V n = splat((float)(end - start));
    for (I d = 0; d < D; d += W) {{
      const I k = min((I)W, D - d);
      const M inside = first(k);
{_mean(centred)}
      const V v = load(x + places[i] * D + d, k) * (factor ? factor[i * step] : 1.0f) - shift;
{_lines(body, 6)}
      {" ".join(adds)}
    }}
  }}
  for (int i = 0; i < {len(s.inversion)}; i++) partial[i] = sums[i];
}}
"""
