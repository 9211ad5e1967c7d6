"""The record of `fmean bench` as a bar chart (matplotlib)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..explain.pictures import COLOURS

__all__ = ["draw_bars", "grouped", "number", "ratio", "title", "warning"]

Row = dict[str, Any]
NOISY = 0.5  # a median that lies further above the fastest call, as a share of it, says little


def grouped(rows: list[Row]) -> list[list[Row]]:
    """The rows of each case, that is of one workload and level."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row["workload"], row["level"]), []).append(row)
    return list(cases.values())


def title(row: Row) -> str:
    each = ", each" if row["layers"] > 1 else ""
    size = f"{row['nodes']:,} nodes, {row['edges']:,} edges × {row['features']}"
    return f"{row['workload']}{each} · {row['level']} · {size}"


def ratio(row: Row, case: list[Row], column: str) -> float | None:
    """The figure in units of PyG's sum in the same case; None without one of them."""
    unit = next((other[column] for other in case if other["method"] == "pyg-sum"), None)
    return row[column] / unit if row.get(column) is not None and unit else None


def warning(rows: list[Row]) -> str:
    """Which figures are not to be trusted; empty, if all may be."""
    noisy = [row["method"] for row in rows if row.get("noise", 0) > NOISY]
    return f"noisy, not to be quoted (was the machine busy?): {', '.join(dict.fromkeys(noisy))}" if noisy else ""


def number(value: float) -> str:
    """
    >>> number(0.1234), number(12.34), number(1234.5)
    ('0.123', '12.3', '1,234')
    """
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value))) if 0 < value < 100 else 0}f}"


def draw_bars(record: dict[str, Any], path: Path) -> Path:
    """One panel for each case: forward (dark) within forward + backward (light), and the ratios to PyG's sum."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cases = [[row for row in case if row["forward_backward_ms"]] for case in grouped(record["rows"])]
    cases = [case for case in cases if case]
    columns = min(2, len(cases))
    lines = [cases[i : i + columns] for i in range(0, len(cases), columns)]
    heights = [0.9 + 0.3 * max(map(len, line)) for line in lines]
    page = Figure(figsize=(7.2 * columns, 0.6 + sum(heights)), layout="constrained")
    FigureCanvasAgg(page)
    grid = page.subplots(len(lines), columns, squeeze=False, gridspec_kw={"height_ratios": heights}).flatten()
    for i, (axes, case) in enumerate(zip(grid, cases, strict=False)):
        _panel(axes, case)
        axes.set_ylim(max(map(len, lines[i // columns])) - 0.5, -0.5)  # bars of one height, the first on top
    for axes in grid[len(cases) :]:
        axes.set_axis_off()
    page.suptitle(
        f"Time and peak memory of an aggregation, beside PyG's sum (× 1)\n{record['machine']}", fontsize=11, x=0.5
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=120)
    return path


def _panel(axes: Any, case: list[Row]) -> None:
    times = [row["forward_backward_ms"] for row in case]
    colours = [_colour(row["method"]) for row in case]
    axes.barh(range(len(case)), times, height=0.78, color=colours, alpha=0.4)
    axes.barh(range(len(case)), [row["forward_ms"] for row in case], height=0.78, color=colours)
    for i, row in enumerate(case):
        slower = ratio(row, case, "forward_backward_ms")
        label = f"{number(row['forward_backward_ms'])} ms" + (f"  × {number(slower)}" if slower else "")
        weight = "bold" if row["method"].startswith("fmean-") else "normal"
        axes.text(
            times[i] * 1.08, i, f"{label},  {number(row['peak_mib'])} MiB", va="center", fontsize=8, weight=weight
        )
    axes.set_yticks(range(len(case)), [row["method"] for row in case], fontsize=9)
    axes.set_xscale("log")
    low = min(row["forward_ms"] for row in case)
    axes.set_xlim(low / 2, max(times) * (max(times) / low) ** 0.6 * 3)  # room for the labels
    axes.set_xlabel("ms: forward (dark), forward + backward (light)", fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", alpha=0.2)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title(title(case[0]) + ("  (noisy!)" if warning(case) else ""), fontsize=9.5, loc="left")


def _colour(method: str) -> str:
    if method.endswith("-plain"):
        return COLOURS[5]
    return COLOURS[0] if method.startswith("fmean-") else "0.45"
