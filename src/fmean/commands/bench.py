"""`fmean bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..experiments.bars import draw_bars, grouped, number, ratio, title, warning
from ..experiments.bench import Bench, Settings, WrongResultError
from ..experiments.contenders import METHODS
from ..experiments.workloads import WORKLOADS
from .base import app, console, fail, say, stopped, typed

__all__ = ["bench"]


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Small graphs, few repetitions: less than a minute.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = Settings.device,
    workload: Annotated[
        list[str] | None, typer.Option(help=f"May be repeated; all, if none is given: {', '.join(WORKLOADS)}.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help=f"May be repeated; all, if none is given: {', '.join(METHODS)}.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The record (JSON), its chart beside it (PNG). [default: results/bench_cpu.json or _gpu.json]"
        ),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Only shows this record, and draws its chart; measures nothing.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with a run that was stopped.")] = False,
) -> None:
    """Measures time and memory of GenAgg beside PyG's aggregations and the authors' package.

    Stop it at any moment: the same command goes on where it was.
    """
    if chart:
        _show(chart)
        return
    try:
        settings = Settings(device, quick, tuple(workload or ()), tuple(method or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    run = Bench(settings, out or settings.out, typed(), fresh)
    for note in run.notes:
        say(note)
    if run.rows:
        say(f"Going on with {run.out}.")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("", total=run.steps)
            for done, step in enumerate(run.run()):
                progress.update(bar, completed=done, description=step)
            progress.update(bar, completed=run.steps, description="")
    except WrongResultError as error:
        fail(str(error))
    except KeyboardInterrupt:
        stopped(f"Stopped; what is complete is in {run.out}, and the same command goes on.")
    _show(run.out)


def _show(path: Path) -> None:
    """The tables of a record of `fmean bench`, and its chart beside it."""
    record = json.loads(path.read_text(encoding="utf-8"))
    for case in grouped(record["rows"]):
        console.print(_bench_table(case))
    say(f"Record: {path}")
    try:
        say(f"Chart: {draw_bars(record, path.with_suffix('.png'))}")
    except ModuleNotFoundError as error:
        say(f"No chart without {error.name}: pip install 'fmean[cli]'")


def _bench_table(case: list[dict[str, Any]]) -> Table:
    columns = {"forward_ms": "forward, ms", "forward_backward_ms": "fwd + bwd, ms"}
    if any("forward_kernel_ms" in row for row in case):
        columns |= {"forward_kernel_ms": "fwd, GPU alone", "forward_backward_kernel_ms": "fwd + bwd, GPU alone"}
    columns |= {"peak_mib": "peak, MiB"}
    table = Table(title=title(case[0]), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, caption=warning(case))
    table.add_column("", no_wrap=True)
    for name in columns.values():
        table.add_column(name, justify="right")
        table.add_column("× sum", justify="right", style="dim")
    for row in case:
        cells = [f"[bold]{row['method']}[/]" if row["method"].startswith("fmean-") else row["method"]]
        for column in columns:
            value, times = row.get(column), ratio(row, case, column)
            cells += ["–" if value is None else number(value), "" if times is None else f"{times:.2f}"]
        if "note" in row:
            cells[1] = f"[yellow]{row['note']}[/]"
        table.add_row(*cells)
    return table
