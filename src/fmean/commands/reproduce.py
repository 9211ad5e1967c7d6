"""`fmean reproduce`: the paper's experiments."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..experiments.paper import COLUMNS, CORRELATION
from ..experiments.record import cores
from ..experiments.regression import EXPERIMENTS, METHODS, USUAL, Settings
from ..experiments.reproduce import AlreadyRunningError, Reproduction
from ..experiments.tables import draw_training, markdown, means
from .base import app, console, fail, say, stopped, typed

__all__ = ["reproduce"]

reproduce = typer.Typer(help="Re-makes the experiments of the paper.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")

QUICK = {"steps": 800, "graphs": 64, "trials": 2, "starts": 8, "tries": 200}

Quick = Annotated[bool, typer.Option("--quick", help="Fewer steps, smaller batches, two trials: a few minutes.")]
Trials = Annotated[int | None, typer.Option(help="Trials of each method. (default: 10)")]
Steps = Annotated[int | None, typer.Option(help="Steps of training. (default: 10000)")]
Methods = Annotated[
    list[str] | None,
    typer.Option("--method", help=f"May be repeated: {', '.join(METHODS)}. (default: all but the last)"),
]
Workers = Annotated[int | None, typer.Option(help="Processes. (default: one for each core, one on a GPU)")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Seed = Annotated[int, typer.Option(help="Seed of data and starts.")]
Out = Annotated[Path | None, typer.Option(help="The record (JSON); tables and plots beside it. (default: in results)")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Do not go on with what is there.")]


def _command(experiment: str) -> Callable[..., None]:
    def run(
        quick: Quick = False,
        trials: Trials = None,
        steps: Steps = None,
        method: Methods = None,
        workers: Workers = None,
        device: Device = "cpu",
        seed: Seed = 0,
        out: Out = None,
        fresh: Fresh = False,
    ) -> None:
        chosen = {"steps": steps, "trials": trials, "seed": seed, "device": device}
        options: dict[str, Any] = (QUICK if quick else {}) | {
            key: value for key, value in chosen.items() if value is not None
        }
        workers = workers or (1 if device == "cuda" else cores())
        name = experiment.replace("-", "_") + ("_quick" if quick else "")
        out = out or Path(f"{'reproduced' if quick else 'results'}/{name}.json")
        try:
            settings = Settings(experiment, **options)
            folder = Path("reproduced") / name
            made = Reproduction(settings, tuple(method or USUAL), out, folder, workers, typed(), fresh)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        except AlreadyRunningError as error:
            fail(str(error))
        _train(made)
        _show(made.out)

    run.__doc__ = f"""{EXPERIMENTS[experiment].about}

    Stop it at any moment: the same command goes on where it was.
    """
    return run


for experiment in EXPERIMENTS:
    reproduce.command(experiment)(_command(experiment))


def _train(run: Reproduction) -> None:
    if run.rows and not run.finished:
        done = sum(unit in run.rows for unit in run.units)
        say(f"Going on: {done} of {len(run.units)} trials are there.")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(EXPERIMENTS[run.settings.experiment].title, total=run.total)
            for done in run.run():
                progress.update(bar, completed=done)
    except BrokenProcessPool:
        fail("A process of the run was killed, perhaps for want of memory. The same command goes on.")
    except KeyboardInterrupt:
        stopped()


def _show(path: Path) -> None:
    """The table of a record in the terminal, and beside the record as Markdown; the training plots."""
    record = json.loads(path.read_text(encoding="utf-8"))
    console.print(_table(record))
    text = path.with_suffix(".md")
    text.write_text(markdown(record), encoding="utf-8")
    say(f"Record: {path}   Table: {text}")
    try:
        drawn = draw_training(record, path)
    except ModuleNotFoundError as error:
        say(f"No plots without {error.name}: pip install 'fmean[cli]'")
    else:
        say("Plots: " + ", ".join(str(one) for one in drawn if one.suffix == ".png"))


def _table(record: dict[str, Any]) -> Table:
    experiment, found = record["settings"]["experiment"], means(record)
    methods = list(found["mean"])
    trials = record["settings"]["trials"]
    table = Table(
        title=f"{record['experiment']}: correlation, mean of {trials} trials; in grey the paper's",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for method in methods:
        table.add_column(method.replace("genagg-", ""), justify="right", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", style="dim", no_wrap=True)
    for target, row in found.items():
        best = max(row.values())
        ours = [f"[bold]{v:.4f}[/]" if v >= best - 0.01 else f"{v:.4f}" for v in (row[m] for m in methods)]
        table.add_row(target, *ours, *(f"{v:.3f}" for v in CORRELATION[experiment][target].values()))
    while table.__rich_measure__(console, console.options).minimum > console.width and len(table.columns) > 3:
        table.columns.pop()  # the paper's columns from the right; the Markdown table has all
    return table
