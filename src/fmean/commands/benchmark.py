"""`fmean reproduce benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..experiments.benchmark.aggregators import AGGREGATORS
from ..experiments.benchmark.driver import Benchmark, from_words
from ..experiments.benchmark.figures import alike, caption, figures
from ..experiments.benchmark.output import markdown
from ..experiments.benchmark.plots import draw_training
from ..experiments.benchmark.scheduler import WorkersDieError, stoppable
from ..experiments.benchmark.words import OPTIONS
from ..experiments.paper import BENCHMARK
from .base import console, fail, say, stopped, typed
from .reproduce import reproduce

__all__ = ["benchmark"]


def _option(name: str) -> Any:
    return typer.Option(f"--{name.replace('_', '-')}", help=OPTIONS[name][1])


@reproduce.command()
def benchmark(
    quick: Annotated[bool, _option("quick")] = False,
    appendix: Annotated[bool, _option("appendix")] = False,
    dataset: Annotated[list[str] | None, _option("dataset")] = None,
    protocol: Annotated[list[str] | None, _option("protocol")] = None,
    aggregator: Annotated[list[str] | None, _option("aggregator")] = None,
    seeds: Annotated[int | None, _option("seeds")] = None,
    share: Annotated[list[float] | None, _option("share")] = None,
    epochs: Annotated[int | None, _option("epochs")] = None,
    batch_size: Annotated[int | None, _option("batch_size")] = None,
    learning_rate: Annotated[float | None, _option("learning_rate")] = None,
    factor: Annotated[float | None, _option("factor")] = None,
    clip: Annotated[float | None, _option("clip")] = None,
    hidden: Annotated[int | None, _option("hidden")] = None,
    layers: Annotated[int | None, _option("layers")] = None,
    head: Annotated[str | None, _option("head")] = None,
    precision: Annotated[str | None, _option("precision")] = None,
    source: Annotated[str | None, _option("source")] = None,
    device: Annotated[str | None, _option("device")] = None,
    devices: Annotated[int | None, _option("devices")] = None,
    compile: Annotated[bool, _option("compile")] = False,
    workers: Annotated[int | None, _option("workers")] = None,
    lanes: Annotated[int | None, _option("lanes")] = None,
    save_every: Annotated[float | None, _option("save_every")] = None,
    ray: Annotated[bool, _option("ray")] = False,
    ray_address: Annotated[str | None, _option("ray_address")] = None,
    out: Annotated[Path | None, _option("out")] = None,
    folder: Annotated[Path | None, _option("folder")] = None,
    fresh: Annotated[bool, _option("fresh")] = False,
) -> None:
    """GNN Benchmark: a 4-layer GraphConv with each aggregation, on PATTERN, CLUSTER, MNIST and CIFAR10.

    Stop it at any moment: the same command goes on where it was. Several at once share out the work.
    """
    words = {name: value for name, value in locals().items() if name in OPTIONS}
    try:
        run = Benchmark(from_words(**words), typed())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _train(run)
    _show(run)
    for name, why in run.failures.items():
        say(f"{name} failed: {why}", "red")
    if run.failures:
        say("The same command tries these again.")
        raise typer.Exit(1)


def _train(run: Benchmark) -> None:
    before = run.progress
    if before.epochs_done and not before.over:
        say(f"Going on: {before.finished} of {before.runs} runs are there.")
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TimeElapsedColumn(), TimeRemainingColumn())
    try:
        with stoppable(), Progress(*columns, console=console) as progress:
            bar = progress.add_task("GNN Benchmark", total=before.epochs)
            for now in run.run():
                what = f"GNN Benchmark, {now.finished} of {now.runs} runs"
                progress.update(bar, completed=now.epochs_done, total=now.epochs, description=what)
    except WorkersDieError as error:
        fail(f"{error}; the same command goes on.")
    except KeyboardInterrupt:
        stopped()


def _show(run: Benchmark) -> None:
    """The tables in the terminal, and beside the record as Markdown; the training plots."""
    record, out = run.record(), run.options.out
    if record is None:
        return
    kinds = dict.fromkeys((job.run.protocol, job.run.dataset, job.run.share) for job in run.jobs)
    for protocol, share in dict.fromkeys((protocol, share) for protocol, _, share in kinds):
        sets = [dataset for one, dataset, part in kinds if (one, part) == (protocol, share)]
        console.print(_table(run.asked(record), protocol, share, sets))
    text = out.with_suffix(".md")
    text.write_text(markdown(record), encoding="utf-8")
    say(f"Record: {out}   Tables: {text}   Models: {run.options.folder / 'models'}")
    try:
        drawn = draw_training(record, out)
    except ModuleNotFoundError as error:
        say(f"No plots without {error.name}: pip install 'fmean[cli]'")
    else:
        say("Plots: " + ", ".join(str(one) for one in drawn if one.suffix == ".png"))


def _table(rows: list[dict[str, Any]], protocol: str, share: float, sets: list[str]) -> Table:
    """An aggregation a line, since a terminal is narrow; in grey the paper's."""
    part = "" if share == 1 else f", {share:.0%} of the data"
    title = f"GNN Benchmark, {protocol} protocol{part}: test accuracy, mean and deviation over the seeds"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    rows, left = alike([row for row in rows if (row["protocol"], row["share"]) == (protocol, share)])
    table.caption, table.caption_justify = caption(rows, left), "left"
    table.add_column("", no_wrap=True)
    found = {dataset: figures(rows, dataset, protocol, share) for dataset in sets}
    for dataset in sets:
        table.add_column(dataset.upper(), justify="right", no_wrap=True)
        if protocol == "paper" and share == 1 and dataset in BENCHMARK:
            table.add_column("paper", justify="right", style="dim", no_wrap=True)
    for name in (name for name in AGGREGATORS if any(name in one for one in found.values())):
        cells = [AGGREGATORS[name].title]
        for dataset, one in found.items():
            best = max((figure.test for figure in one.values()), default=0.0)
            figure = one.get(name)
            cells.append("–" if figure is None else f"[bold]{figure}[/]" if figure.test == best else str(figure))
            if protocol == "paper" and share == 1 and dataset in BENCHMARK:
                theirs = BENCHMARK[dataset].get("genagg" if name.startswith("genagg") else name)
                cells.append("" if theirs is None else f"{theirs[0]:.3f}")
        table.add_row(*cells)
    return table
