"""`fmean report`."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..explain.explanation import explain
from ..explain.reading import aggregations
from ..explain.report import layer_name
from ..explain.report import report as write_report
from .base import app, console, fail, say

__all__ = ["report"]


@app.command()
def report(
    checkpoint: Annotated[
        Path, typer.Argument(help="A file of fmean.save, a model's state_dict, or a training checkpoint with one.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    history: Annotated[
        Path | None, typer.Option(help="What was recorded in training: History.to_dict() as JSON.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title. (default: the file's name)")] = None,
) -> None:
    """Says what each GenAgg of a checkpoint has learned, and writes a page about them for a browser.

    No code in the checkpoint is run.
    """
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = aggregations(checkpoint)
        recorded = _history(history) if history else found.history
        for warning in caught:
            say(str(warning.message), "yellow")
        for path_in_model, agg in found.layers.items():
            name = layer_name(path_in_model) or "aggregation"
            console.print(f"[bold]{escape(name)}[/]: {escape(explain(agg, name).text)}\n", highlight=False)
        path = write_report(found.layers, out, recorded, title or f"What {checkpoint.name} learned")
    except (ValueError, OSError, ModuleNotFoundError) as error:
        fail(str(error))
    say(f"Page: {path}")


def _history(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}") from None
