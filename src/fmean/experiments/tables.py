"""The tables of the regression experiments, ours beside the paper's, and their training plots."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from ..explain.pictures import COLOURS, figure
from ..standard import STANDARD
from .paper import CORRELATION

__all__ = ["draw_training", "markdown", "means", "summary"]

Record = dict[str, Any]


def _methods(record: Record) -> list[str]:
    """The methods there are rows of, in their order."""
    return list(dict.fromkeys(row["method"] for row in record["rows"]))


def _of(record: Record, target: str, method: str) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if row["target"] == target and row["method"] == method]


def _correlations(record: Record, target: str, method: str) -> list[float]:
    # A model with no answer, or always the same, has no correlation.
    return [0.0 if row["correlation"] is None else row["correlation"] for row in _of(record, target, method)]


def means(record: Record) -> dict[str, dict[str, float]]:
    """Correlation by target and method, the mean over all trials."""
    return {
        target: {
            method: statistics.fmean(found)
            for method in _methods(record)
            if (found := _correlations(record, target, method))
        }
        for target in STANDARD
    }


def summary(record: Record, method: str) -> tuple[float, float, float]:
    """Of a method: the mean over all targets, the lowest row, the worst single trial."""
    rows = [found[method] for found in means(record).values()]
    worst = min(min(_correlations(record, target, method)) for target in STANDARD)
    return statistics.fmean(rows), min(rows), worst


def markdown(record: Record) -> str:
    """The table: for every target the mean over all trials, and in brackets the worst; behind it the paper's."""
    experiment = record["settings"]["experiment"]
    methods, found, paper = _methods(record), means(record), CORRELATION[experiment]
    heads = ["", *methods, "paper: GenAgg", "P-Agg", "S-Agg", "mean"]
    lines = [" | ".join(heads), " | ".join(["---", *["---:"] * (len(heads) - 1)])]
    for target in STANDARD:
        best = max(found[target].values())
        cells = [target.replace("_", " ")]
        for method in methods:
            # Bold as in the paper: the highest, and those within 0.01 of it.
            mean, worst = f"{found[target][method]:.4f}", min(_correlations(record, target, method))
            mean = f"**{mean}**" if found[target][method] >= best - 0.01 else mean
            cells.append(f"{mean} ({worst:.3f})")
        lines.append(" | ".join([*cells, *(f"{value:.3f}" for value in paper[target].values())]))
    ours = [statistics.fmean(found[target][method] for target in STANDARD) for method in methods]
    theirs = [statistics.fmean(paper[target][column] for target in STANDARD) for column in paper["mean"]]
    lines.append(" | ".join(["all", *(f"{v:.4f}" for v in ours), *(f"{v:.3f}" for v in theirs)]))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def draw_training(record: Record, path: Path) -> list[Path]:
    """One plot for each method, PNG and SVG: correlation over the steps, mean and deviation over the trials."""
    written = []
    for method in _methods(record):
        rows = [row for row in record["rows"] if row["method"] == method]
        if not rows[0]["curve"]:
            continue  # nothing was trained
        page = figure(9, 5.2)
        axes = page.subplots()
        lowest = 1.0
        for i, target in enumerate(STANDARD):
            curves = zip(*(row["curve"] for row in rows if row["target"] == target), strict=True)
            known = [[value for value in point if value is not None] or [math.nan] for point in curves]
            middle = [statistics.fmean(point) for point in known]
            spread = [statistics.pstdev(point) for point in known]
            lowest = min(lowest, *(m for m in middle if not math.isnan(m)))
            colour, style = COLOURS[i % len(COLOURS)], ("-", "--", ":")[i // len(COLOURS)]
            axes.plot(record["points"], middle, color=colour, linestyle=style, label=target.replace("_", " "))
            low, high = ([m + sign * s for m, s in zip(middle, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(record["points"], low, high, color=colour, alpha=0.12, linewidth=0)
        trials = record["settings"]["trials"]
        axes.set_title(f"{record['experiment']}, {method}: mean and deviation over {trials} trials", loc="left")
        axes.set_xlabel("step")
        axes.set_ylabel("correlation with the target")
        axes.set_ylim(lowest - 0.1 * (1 - lowest), 1 + 0.03 * (1 - lowest))  # all that is below 1 can be told apart
        axes.grid(alpha=0.2)
        page.legend(loc="outside right upper", frameon=False)
        for suffix in (".png", ".svg"):
            target_path = path.with_name(f"{path.stem}_{method}{suffix}")
            page.savefig(target_path, dpi=120, metadata={"Date": None} if suffix == ".svg" else None)
            written.append(target_path)
    return written
