"""Training plots of the benchmark (matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...explain.pictures import COLOURS, figure
from .aggregators import AGGREGATORS
from .figures import Figure, figures
from .protocols import CITATION, DATASETS, PROTOCOLS

__all__ = ["draw_training"]


def draw_training(record: dict[str, Any], path: Path) -> list[Path]:
    """For each data set and protocol a plot, PNG and SVG: test accuracy over the epochs, mean and deviation.

    Of the citation networks train accuracy as well, as in the paper's appendix.
    """
    written = []
    for protocol in PROTOCOLS:
        for dataset in DATASETS:
            for share in sorted({row["share"] for row in record["rows"]}, reverse=True):
                found = figures(record["rows"], dataset, protocol, share)
                if found:
                    name = f"{path.stem}_{protocol}_{dataset}" + ("" if share == 1 else f"_{share:g}")
                    title = f"{dataset.upper()}, {protocol} protocol" + ("" if share == 1 else f", {share:.0%} of it")
                    written += _draw(found, path.with_name(name), title, both=dataset in CITATION)
    return written


def _draw(found: dict[str, Figure], path: Path, title: str, both: bool) -> list[Path]:
    page = figure(12 if both else 8, 4.8)
    panels = page.subplots(1, 2, sharey=True) if both else [page.subplots()]
    for axes, part in zip(panels, ("test", "train"), strict=False):
        lowest, highest = 1.0, 0.0
        for name, one in found.items():
            at = list(AGGREGATORS).index(name)
            colour, style = COLOURS[at % len(COLOURS)], ("-", "--", ":", "-.")[at // len(COLOURS)]
            mean = one.mean if part == "test" else one.train_mean
            width = 2.2 if name.startswith("genagg") else 1.3
            label = AGGREGATORS[name].title
            axes.plot(one.points, mean, color=colour, linestyle=style, linewidth=width, label=label)
            if part == "test":
                low, high = ([m + sign * s for m, s in zip(mean, one.spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(one.points, low, high, color=colour, alpha=0.12, linewidth=0)
            settled = mean[len(mean) // 10 :]  # the first few steps would hide the rest
            lowest, highest = min(lowest, *settled, 1.0), max(highest, *settled, 0.0)
        room = 0.08 * (highest - lowest) + 0.002
        axes.set_ylim(lowest - room, highest + room)
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{part} accuracy")
        axes.grid(alpha=0.2)
        axes.xaxis.get_major_locator().set_params(integer=True)
    page.suptitle(f"{title}: {_over(sorted({one.seeds for one in found.values()}))}", x=0.01, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    page.legend(handles, labels, loc="outside right center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in (".png", ".svg"):
        target = path.with_name(path.name + suffix)
        page.savefig(target, dpi=120, metadata={"Date": None} if suffix == ".svg" else None)
        written.append(target)
    return written


def _over(seeds: list[int]) -> str:
    """
    >>> _over([1]), _over([3]), _over([1, 2])
    ('one seed', 'mean and deviation over 3 seeds', 'mean and deviation over 1 to 2 seeds')
    """
    if seeds == [1]:
        return "one seed"
    return f"mean and deviation over {' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
