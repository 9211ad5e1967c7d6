"""Pictures of learned functions (matplotlib)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..functions import SYMBOLIC, Exp, Power
from ..genagg import GenAgg

if TYPE_CHECKING:
    from .learn import Learned

__all__ = ["COLOURS", "draw_all", "draw_function", "figure"]

# Okabe and Ito's colours, told apart by the colour-blind as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def draw_function(axes: Any, agg: GenAgg, target: str | None = None) -> None:
    """Draws the channels of f, each stretched to [−1, 1], and behind them the f of a standard aggregator.

    An f-mean is the same for f and a·f + b (with α = 0), so only the shape of f says something.
    The channels of a mixture are as strong in colour as they weigh.
    """
    x = torch.linspace(-3, 3, 601)
    with torch.no_grad():
        s = agg.f(x)
    channels = s.unbind(-1) if s.dim() > 1 else (s,)
    weights = agg.f.w.tolist() if hasattr(agg.f, "w") else [1.0] * len(channels)
    heaviest = max(range(len(channels)), key=lambda i: weights[i])
    if target is not None:
        true = _stretched(_drawable(target)(x))
        # f and −f mean the same: draw the standard f the way the learned one runs.
        if (true * _stretched(channels[heaviest])).nanmean() < 0:
            true = -true
        axes.plot(x, true, color="0.6", linewidth=4, alpha=0.6, label=f"{target.replace('_', ' ')}", zorder=1)
    names = agg.f.formula.split("; ")
    for i, channel in enumerate(channels):
        label = f"{names[i]}  ({weights[i]:.0%})" if len(names) == len(channels) > 1 else (names[0] if i == 0 else None)
        axes.plot(x, _stretched(channel), color=COLOURS[i], alpha=0.15 + 0.85 * weights[i], label=label, zorder=2)
    axes.set_xlabel("x")
    axes.set_yticks([])
    axes.grid(alpha=0.2)


def figure(width: float, height: float) -> Any:
    """An empty page of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    new = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(new)
    return new


def draw_all(learned: list[Learned], folder: Path) -> Path:
    """A picture of every learned f, `TARGET.png`, and all of them on one page, `overview.png`."""
    for one in learned:
        page = figure(6, 4)
        axes = page.subplots()
        draw_function(axes, one.agg, one.target)
        axes.set_title(f"{one.target.replace('_', ' ')}: correlation {one.correlation:.4f}")
        axes.set_ylabel("f(x), stretched to [−1, 1]")
        axes.legend(fontsize=8, loc="best")
        page.savefig(folder / f"{one.target}.png", dpi=120)

    columns = min(4, len(learned))
    rows = math.ceil(len(learned) / columns)
    page = figure(3.4 * columns, 2.8 * rows)
    grid = page.subplots(rows, columns, squeeze=False).flatten()
    for axes, one in zip(grid, learned, strict=False):
        draw_function(axes, one.agg, one.target)
        axes.set_title(f"{one.target.replace('_', ' ')}  {one.correlation:.4f}", fontsize=10)
        axes.legend(fontsize=6, loc="best", framealpha=0.6)
    for axes in grid[len(learned) :]:
        axes.set_axis_off()
    page.savefig(folder / "overview.png", dpi=120)
    return folder / "overview.png"


def _drawable(target: str) -> Any:
    """The standard f; for a limit p → ±∞ one with a large p, since the limit itself has no graph."""
    f: Any = SYMBOLIC[target]()
    return type(f)(math.copysign(8.0, f.p)) if isinstance(f, (Exp, Power)) and math.isinf(f.p) else f


def _stretched(s: Tensor) -> Tensor:
    """s scaled to [−1, 1]; the few per cent farthest out, near a pole, are cut off."""
    finite = s[s.isfinite() & (s.abs() < 1e29)]
    low, high = torch.quantile(finite, torch.tensor([0.02, 0.98]))
    out = 2 * (s - low) / (high - low).clamp_min(1e-12) - 1
    return torch.where(out.abs() <= 1.15, out, torch.nan)
