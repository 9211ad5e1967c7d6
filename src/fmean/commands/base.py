"""What the commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .. import __version__

__all__ = ["app", "console", "typed"]

app = typer.Typer(
    help="The generalised f-mean, a learnable aggregation for graph neural networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()


@app.callback(invoke_without_command=True)
def fmean(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        console.print(__version__, highlight=False)
        raise typer.Exit


def typed() -> str:
    """What was typed, for the record, without the folders of this machine."""
    return " ".join(["fmean", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])
