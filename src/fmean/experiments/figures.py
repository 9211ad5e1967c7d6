"""The paper's Figure 1: GenAgg of two values, for six parametrisations θ = ⟨f, α, β⟩."""

from __future__ import annotations

from pathlib import Path

from ..explain.curves import contour
from ..explain.pictures import draw_contour, draw_scale, figure, write
from ..functions import Exp, LogAbs, ScalarFunction, Sigmoid, Tanh
from ..genagg import GenAgg

__all__ = ["FIGURE_1", "draw_figures"]

FIGURE_1: tuple[tuple[type[ScalarFunction], float, float], ...] = (
    (Sigmoid, 0.0, -1.0),
    (Exp, 0.0, 0.0),
    (LogAbs, 0.0, 0.0),
    (Tanh, 0.0, 0.0),
    (Exp, 0.0, 1.0),
    (LogAbs, 0.0, 1.0),
)


def draw_figures(folder: Path, largest: float = 3.0) -> list[Path]:
    """All six on one page, `figure1.png` and `figure1.svg`, over [−largest, largest]²."""
    page = figure(11, 7.4)
    grid = page.subplots(2, 3).flatten()
    for axes, (f, alpha, beta) in zip(grid, FIGURE_1, strict=True):
        agg = GenAgg(f(), alpha, beta, learn_alpha=False, learn_beta=False)
        # An even number of points: none lies where x₀ = −x₁ or x = 0, at a pole.
        draw_scale(page, axes, draw_contour(axes, contour(agg, -largest, largest, 100)))
        axes.set_title(f"θ = ⟨{agg.f.formula}, {alpha:g}, {beta:g}⟩".replace("-", "−"))
    return [write(page, folder / f"figure1.{suffix}") for suffix in ("png", "svg")]
