"""The kernel for a CPU that goes back from the rows to the nodes of a layer, as C++ source."""

from __future__ import annotations

from .c_backward import FLUSH, accumulate, planes_of
from .c_rows import ALL, load_parameters, over_rows
from .c_writer import c_writer, lines_of, vector
from .expression import ELEMENT, Expression
from .sections import Sections

__all__ = ["sources_kernel"]


def sources_kernel(s: Sections, centred: bool, held: bool) -> str:
    """∂L/∂x of every node, from what the rows it is an element of handed out (the transposed rows)."""
    writer = c_writer(s)
    head = load_parameters(s, writer, [*s.back_element, *s.back_scaled_element], centred)
    declare, add, end = accumulate(s)
    planes = planes_of(s, centred)

    loads = {p: f"const V {p} = load(from + {i} * D, k);" for i, p in enumerate(planes)}

    def element(outputs: list[Expression], h: bool) -> list[str]:
        inner = writer.fork()
        lines = [loads[p] for p in planes if h and p.startswith("h")]
        lines += inner.write(outputs, ELEMENT)
        lines += [f"b{i} += {vector(inner, e)};" for i, e in enumerate(outputs[1:]) if e.op != "const"]
        return [*lines, f"dv += bounded({vector(inner, outputs[0])});"]

    body = f"""        {{
{lines_of(element(s.back_element, False), 10)}
        }}"""
    once = ""
    if not (centred or s.largest):
        # Without factors v is the same in all rows, and what they hand out can be summed before f is looked at.
        adds = " ".join(f"A{i} += G{i};" for i in range(len(s.t)))
        body = f"if (!WEIGHTED) {{ once = true; {adds} }} else {body.lstrip()}"
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
        once = lines_of(lines, 6)
    if s.h:
        body = f"""        if (flags[t * ((D + W - 1) / W) + d / W]) {{
{lines_of(element(s.back_scaled_element, True), 10)}
        }} else {body.lstrip()}"""
    else:
        body = f"        {body.lstrip()}"
    shift, share = (" - shift", "-share") if centred else ("", "V{}")
    roots = range(len(s.roots))
    body = f"""      const M inside = first(k);
      const V xe = load(x + row * D + d, k);
      V dxe = {{}};
      bool once = false;
      {" ".join(f"V b{i} = {{}};" for i in roots)}
      {" ".join(f"V A{i} = {{}};" for i in range(len(s.t)))}
      for (I e = start; e < end; e++) {{
        const I t = col[e];
        const float w = FACTOR(e);
        const R* from = state + t * {len(planes)} * D + d;
{lines_of([line for p, line in loads.items() if not p.startswith("h")], 8)}
        const V v = xe * w{shift};
        V dv = {share};
{body}
        dxe += dv * w;
        if (WEIGHTED && dfactor) dfactor[edge ? edge[e] : e] += sum(sel(inside, dv * xe, V{{}}));
      }}
{once}
      store(dx + row * D + d, dxe, k);
      {add}"""
    row = "    const I start = ptr[row], end = ptr[row + 1];"
    return f"""
extern "C" void backward_sources(const float* x, const float* factor, const I* ptr, const I* col, const I* edge,
    const R* state, const unsigned char* flags, float* dx, float* dfactor, float* partial, const float* params,
    I D, I first_row, I last_row) {{
{ALL}
{over_rows(held, row, body, head, declare, FLUSH, end)}
}}
"""
