"""Pictures of learned functions (matplotlib)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..explain.curves import curve
from ..explain.pictures import draw_function, figure

if TYPE_CHECKING:
    from .learn import Learned

__all__ = ["draw_all"]


def draw_all(learned: list[Learned], folder: Path) -> Path:
    """A picture of every learned f, `TARGET.png`, and all of them on one page, `overview.png`."""
    for one in learned:
        page = figure(6, 4)
        axes = page.subplots()
        draw_function(axes, curve(one.agg, -3.0, 3.0, one.target))
        axes.set_title(f"{one.target.replace('_', ' ')}: correlation {one.correlation:.4f}")
        axes.set_ylabel("f(x), stretched to [−1, 1]")
        axes.legend(fontsize=8, loc="best")
        page.savefig(folder / f"{one.target}.png", dpi=120)

    columns = min(4, len(learned))
    rows = math.ceil(len(learned) / columns)
    page = figure(3.4 * columns, 2.8 * rows)
    grid = page.subplots(rows, columns, squeeze=False).flatten()
    for axes, one in zip(grid, learned, strict=False):
        draw_function(axes, curve(one.agg, -3.0, 3.0, one.target))
        axes.set_title(f"{one.target.replace('_', ' ')}  {one.correlation:.4f}", fontsize=10)
        axes.legend(fontsize=6, loc="best", framealpha=0.6)
    for axes in grid[len(learned) :]:
        axes.set_axis_off()
    page.savefig(folder / "overview.png", dpi=120)
    return folder / "overview.png"
