"""`fmean data`: the data sets of the paper."""

from __future__ import annotations

import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..data import NAMES, DamagedError, MissingError, State, states
from ..data import build as build_files
from ..data.places import cache
from ..experiments.record import cores
from .base import app, console, fail, say, stopped

__all__ = ["data"]

data = typer.Typer(help="Makes the data sets of the paper, and says what is there.", no_args_is_help=True)
app.add_typer(data, name="data")

Root = Annotated[Path | None, typer.Option(help="Folder of what is made. (default: $FMEAN_CACHE, or data)")]
Raw = Annotated[
    Path | None, typer.Option(help="Folder of the original files. (default: $FMEAN_DATA, or ../shared/data)")
]
Source = Annotated[str, typer.Option(help="made, or published: the authors' graphs, downloaded by PyG.")]


@data.command()
def build(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    root: Root = None,
    raw: Raw = None,
    source: Source = "made",
    workers: Annotated[int | None, typer.Option(help="Processes. (default: one for each core)", min=1)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make it anew, even what is there already.")] = False,
) -> None:
    """Makes a data set.

    Stop it at any moment: the same command goes on where it was.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    try:
        files = build_files(name, root, raw, source, workers or cores(), fresh)
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(f"Making {name}", total=None)
            for done, total in files:
                progress.update(bar, completed=done, total=total)
    except (MissingError, DamagedError) as error:
        fail(str(error))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except ModuleNotFoundError as error:
        fail(f"{error.name} is needed: pip install 'fmean[data]'")
    except BrokenProcessPool:
        fail("A process was killed, perhaps for want of memory. The same command goes on.")
    except KeyboardInterrupt:
        stopped()
    say(f"{name} is whole, after {time.monotonic() - began:.0f} s.")
    console.print(_table([name], root, source))


@data.command()
def info(
    name: Annotated[str | None, typer.Argument(help="A data set; all, if none is given.")] = None,
    root: Root = None,
    source: Source = "made",
) -> None:
    """What there is of the data sets; every file is read and verified."""
    try:
        console.print(_table([name] if name else list(NAMES), root, source))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _table(names: list[str], root: Path | None, source: str) -> Table:
    """A row for each file."""
    table = Table(title=f"In {cache(root)}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in ("file", "graphs", "nodes", "edges", "classes", "MB", "state"):
        table.add_column(column, justify="left" if column in ("file", "state") else "right", no_wrap=True)
    for name in names:
        for one in states(name, root, source):
            colour = {"whole": "green", "damaged": "red"}.get(one.state, "dim")
            size = f"{one.path.stat().st_size / 1e6:.1f}" if one.path.exists() else ""
            file = "/".join(one.path.parts[-2:])
            table.add_row(file, *_figures(one), size, f"[{colour}]{one.state}[/]")
    table.caption = "Nodes and edges are means. What is not built is made when it is loaded, but mnist and cifar10."
    table.caption_justify = "left"
    return table


def _figures(one: State) -> tuple[str, ...]:
    """Graphs, mean nodes, mean edges, classes."""
    if one.graphs is None:
        return ("",) * 4
    graphs, count = one.graphs, len(one.graphs)
    means = f"{len(graphs.x) / count:.1f}", f"{graphs.edge_index.shape[1] / count:.1f}"
    return str(count), *means, str(graphs.classes)
