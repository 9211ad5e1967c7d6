"""What the commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from .. import __version__

__all__ = ["app", "console", "fail", "say", "stopped", "typed"]

app = typer.Typer(
    help="The generalised f-mean, a learnable aggregation for graph neural networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()


@app.callback(invoke_without_command=True)
def fmean(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        say(__version__)
        raise typer.Exit


def typed() -> str:
    """What was typed, for the record, without the folders of this machine."""
    return " ".join(["fmean", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def say(message: str, style: str | None = None) -> None:
    """Prints it as it stands: paths and names of extras, as in fmean[cli], are no markup, and lines not broken."""
    console.print(message, style=style, highlight=False, markup=False, soft_wrap=True)


def fail(message: str) -> NoReturn:
    say(message, "red")
    raise typer.Exit(1) from None


def stopped(message: str = "Stopped; the same command goes on from here.") -> NoReturn:
    say(message)
    raise typer.Exit(130) from None
