"""`fmean reproduce figures`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .base import fail, say
from .reproduce import reproduce

__all__ = ["figures"]


@reproduce.command()
def figures(out: Annotated[Path, typer.Option(help="The folder to draw into.")] = Path("results")) -> None:
    """Figure 1: GenAgg of two values, for six parametrisations ⟨f, α, β⟩."""
    try:
        from ..experiments.figures import draw_figures

        drawn = draw_figures(out)
    except ModuleNotFoundError as error:
        fail(f"No pictures without {error.name}: pip install 'fmean[cli]'")
    say("Figure 1: " + ", ".join(map(str, drawn)))
