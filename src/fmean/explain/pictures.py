"""Pictures of an aggregation (matplotlib)."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .curves import contour, curve
from .words import title

if TYPE_CHECKING:
    from .explanation import Explanation

__all__ = ["COLOURS", "draw_contour", "draw_explanation", "draw_function", "draw_scale", "figure", "write"]

# Okabe and Ito's colours, told apart by the colour-blind as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def figure(width: float, height: float) -> Any:
    """An empty page of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    new = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(new)
    return new


def write(page: Any, path: Path) -> Path:
    """Writes a page to a file of the kind its suffix names; the same page gives the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path


def draw_function(axes: Any, drawn: dict[str, Any]) -> None:
    """Draws what `curve` gives: the channels of f, as strong in colour as they weigh, over the f of a standard."""
    x = _array(drawn["x"])
    if drawn["standard"]:
        axes.plot(x, _array(drawn["standard"]["y"]), color="0.6", linewidth=4, alpha=0.6, zorder=1)
        axes.lines[-1].set_label(drawn["standard"]["label"])
    channels = drawn["channels"]
    heaviest = max(channel["weight"] for channel in channels)
    for i, channel in enumerate(channels):
        label = f"{channel['label']}  ({channel['weight']:.0%})" if len(channels) > 1 else channel["label"]
        strength = 0.15 + 0.85 * channel["weight"] / heaviest
        axes.plot(x, _array(channel["y"]), color=COLOURS[i % len(COLOURS)], alpha=strength, label=label, zorder=2)
    axes.set_xlabel("x")
    axes.set_yticks([])
    axes.grid(alpha=0.2)


def draw_inverse(axes: Any, drawn: dict[str, Any]) -> None:
    """Draws f⁻¹ of every channel, x over s, over that of a standard."""
    if drawn["standard"]:
        inverse = drawn["standard"]["inverse"]
        axes.plot(_array(inverse["s"]), _array(inverse["x"]), color="0.6", linewidth=4, alpha=0.6, zorder=1)
    heaviest = max(channel["weight"] for channel in drawn["channels"])
    for i, channel in enumerate(drawn["channels"]):
        inverse, strength = channel["inverse"], 0.15 + 0.85 * channel["weight"] / heaviest
        axes.plot(_array(inverse["s"]), _array(inverse["x"]), color=COLOURS[i % len(COLOURS)], alpha=strength)
    axes.set_xlabel("s, stretched to [−1, 1]")
    axes.set_ylabel("x")
    axes.grid(alpha=0.2)


def draw_contour(axes: Any, drawn: dict[str, Any], levels: int = 14) -> Any:
    """Draws what `contour` gives: ⊕{x₀, x₁}; the mappable, for a colour bar."""
    x, z = _array(drawn["x"]), np.array([_array(row) for row in drawn["z"]])
    finite = z[np.isfinite(z)]
    low, high = np.quantile(finite, [0.01, 0.99]) if finite.size else (0.0, 1.0)
    if high - low < 1e-9 * max(1.0, abs(low)):
        low, high = low - 1, high + 1  # the same everywhere
    steps = np.linspace(low, high, levels + 1)
    shades = axes.contourf(x, x, np.clip(z, low, high), steps, cmap="cividis", extend="neither")
    # Not at the ends, to which values were clipped.
    axes.contour(x, x, np.clip(z, low, high), steps[1:-1], colors="white", linewidths=0.4, alpha=0.5)
    axes.set_xlabel("x₀")
    axes.set_ylabel("x₁")
    axes.set_aspect("equal")
    return shades


def draw_scale(page: Any, axes: Any, shades: Any) -> None:
    """The colours of a contour and their numbers, beside it."""
    from matplotlib.ticker import MaxNLocator

    page.colorbar(shades, ax=axes, shrink=0.8, ticks=MaxNLocator(6))


def draw_explanation(e: Explanation, path: Path) -> Path:
    """f with the nearest standard f over it, f⁻¹, and ⊕{x₀, x₁}, with the paragraph below."""
    low, high = e.bounds
    drawn = curve(e.typical, low, high, e.nearest[0][0])
    page = figure(13, 5)
    page.get_layout_engine().set(wspace=0.06)
    left, middle, right = page.subplots(1, 3)
    draw_function(left, drawn)
    left.set_title("f(x), stretched to [−1, 1]", fontsize=11)
    left.legend(fontsize=8, loc="best", framealpha=0.6)
    draw_inverse(middle, drawn)
    middle.set_title("f⁻¹(s)", fontsize=11)
    draw_scale(page, right, draw_contour(right, contour(e.typical, low, high)))
    right.set_title("⊕{x₀, x₁}, of two elements", fontsize=11)
    name, r = e.nearest[0]
    head = f"{e.name}: " if e.name else ""
    numbers = f"α = {e.alpha:.2f}, β = {e.beta:.2f}; nearest {title(name)}, correlation {r:.4f}"
    page.suptitle(f"{head}{numbers}", parse_math=False)
    page.supxlabel("\n".join(textwrap.wrap(e.text, 150)), fontsize=9, ha="center", parse_math=False)
    return write(page, path)


def _array(values: list[float | None]) -> Any:
    return np.array([np.nan if v is None else v for v in values], dtype=float)


def draw_history(history: dict[str, Any], path: Path) -> Path:
    """A row for each layer: α, β, the numbers of f, and the nearest standard aggregator, over the steps."""
    layers, steps = history["layers"], history["steps"]
    page = figure(13, 2.6 * len(layers) + 0.4)
    grid = page.subplots(len(layers), 3, squeeze=False)
    for row, (name, entry) in zip(grid, layers.items(), strict=True):
        left, middle, right = row
        for i, values in enumerate(zip(*entry["alpha"], strict=True)):
            label = "α" if len(entry["alpha"][0]) == 1 else f"α{i + 1}"
            left.plot(steps, values, color=COLOURS[i % len(COLOURS)], label=label)
        left.plot(steps, [beta[0] for beta in entry["beta"]], color="black", linestyle="--", label="β")
        for i, (label, values) in enumerate(entry["parameters"].items()):
            style = ("-", "--")[i // len(COLOURS) % 2]
            middle.plot(steps, values, color=COLOURS[i % len(COLOURS)], linestyle=style, label=label)
        _draw_curves(middle, steps, entry.get("curves", []))
        names = list(dict.fromkeys(nearest for nearest, _ in entry["nearest"]))
        for i, one in enumerate(names):
            points = [(step, r) for step, (other, r) in zip(steps, entry["nearest"], strict=True) if other == one]
            right.plot(*zip(*points, strict=True), "os^Dv*"[i // len(COLOURS) % 6], color=COLOURS[i % len(COLOURS)])
            right.lines[-1].set_label(title(one))
        right.plot(steps, [r for _, r in entry["nearest"]], color="0.8", zorder=0)
        left.set_title(name, fontsize=10, loc="left", parse_math=False)
        of = "f over x, from pale at the first step to dark" if entry.get("curves") else "f"
        middle.set_title(of, fontsize=10, loc="left")
        right.set_title("nearest standard aggregator, correlation", fontsize=10, loc="left")
        for axes in row:
            axes.grid(alpha=0.2)
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=7, ncols=2, framealpha=0.6)
    for axes, entry in zip(grid[:, 1], layers.values(), strict=True):
        axes.set_xlabel("x" if entry.get("curves") else "step")
    for axes in (grid[-1, 0], grid[-1, 2]):
        axes.set_xlabel("step")
    return write(page, path)


def _draw_curves(axes: Any, steps: list[int], curves: list[dict[str, Any]]) -> None:
    """f at up to six of the steps."""
    chosen = sorted({round(i) for i in np.linspace(0, len(curves) - 1, min(6, len(curves)))})
    for i in chosen:
        for k, y in enumerate(curves[i]["y"]):
            strength = 0.15 + 0.85 * i / max(1, chosen[-1])
            axes.plot(_array(curves[i]["x"]), _array(y), color=COLOURS[k % len(COLOURS)], alpha=strength)
            if i == chosen[-1]:
                axes.lines[-1].set_label(f"channel {k + 1}" if len(curves[i]["y"]) > 1 else f"step {steps[i]}")
