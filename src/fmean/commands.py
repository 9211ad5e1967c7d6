"""The commands behind `fmean`, with what they show."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from . import __version__
from .checkpoint import save
from .experiments.bars import draw_bars, grouped, number, ratio, title, warning
from .experiments.bench import Bench, WrongResultError
from .experiments.bench import Settings as BenchSettings
from .experiments.contenders import METHODS
from .experiments.learn import MODELS, PAPER, Learned, Learner, Settings
from .experiments.record import write_record
from .experiments.workloads import WORKLOADS
from .standard import STANDARD

__all__ = ["app"]

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


@app.command()
def learn(
    target: Annotated[
        list[str] | None,
        typer.Option(help="A standard aggregator to learn; may be repeated. All 13, if none is given."),
    ] = None,
    f: Annotated[str, typer.Option(help=f"The f that learns: {', '.join(MODELS)}.")] = "sinh",
    steps: Annotated[int, typer.Option(help="Steps of training.")] = Settings.steps,
    seed: Annotated[int, typer.Option(help="Seed of data and starts.")] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder for what was learned: TARGET.pt, TARGET.png, overview.png, table.json.")
    ] = Path("learned"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Learn anew, even what is there already.")] = False,
) -> None:
    """Learns the standard aggregators from random graphs, and shows what came out beside the paper's figures.

    Stop it at any moment: the same command goes on where it was.
    """
    try:
        settings = Settings(tuple(target) if target else STANDARD, f, steps, seed=seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    folder = out / f
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    learner = Learner(settings, folder / "training.pt")
    if learner.step == steps:
        console.print(f"Learned already, in {folder}; say [bold]--fresh[/] to learn anew.")
    else:
        if learner.step:
            console.print(f"Going on at step {learner.step}.")
        _train(learner, f"Learning {len(settings.targets)}")

    learned = learner.result()
    for one in learned:
        save(one.agg, folder / f"{one.target}.pt")
    write_record(
        folder / "table.json",
        _command(),
        [one.row() for one in learned],
        seconds=round(learner.seconds, 1),
    )
    console.print(_table(learned, f, learner.seconds))
    _draw(learned, folder)
    console.print(f'Use one: [bold]fmean.load("{folder / learned[0].target}.pt")[/]', highlight=False)


def _command() -> str:
    """What was typed, for the record, without the folders of this machine."""
    return " ".join(["fmean", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def _train(learner: Learner, title: str) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("worst r {task.fields[worst]}"),
    )
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(title, total=learner.settings.steps, completed=learner.step, worst="…")
            for worst in learner.train():
                progress.update(bar, completed=learner.step, worst=f"{worst:.3f}")
    except KeyboardInterrupt:
        console.print(
            f"Stopped at step {learner.step} of {learner.settings.steps}; the same command goes on from here."
        )
        raise typer.Exit(130) from None


def _table(learned: list[Learned], f: str, seconds: float) -> Table:
    table = Table(
        title=f"Learned with f = {f} in {seconds:.0f} s", title_justify="left", box=SIMPLE_HEAD, pad_edge=False
    )
    for name in ("aggregator", "correlation", "paper", "α", "β", "nearest", "f"):
        numbers = name in ("correlation", "paper", "α", "β")
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True)
    for one in learned:
        nearest = one.nearest[0][0]
        table.add_row(
            one.target,
            f"[{'green' if one.correlation >= PAPER[one.target] else 'yellow'}]{one.correlation:.4f}[/]",
            f"{PAPER[one.target]:.3f}",
            *_reading(one),
            nearest if nearest == one.target else f"[yellow]{nearest}[/]",
            _formula(one),
        )
    if table.__rich_measure__(console, console.options).minimum > console.width:
        table.columns.pop()  # the formulas do not fit; table.json has them
    return table


def _heaviest(one: Learned) -> int:
    return int(one.agg.f.w.argmax()) if hasattr(one.agg.f, "w") else 0


def _reading(one: Learned) -> tuple[str, str]:
    """α, of the heaviest channel where each has its own, and β."""
    alpha = one.agg.alpha.flatten()
    return _number(alpha[_heaviest(one) if alpha.numel() > 1 else 0]), _number(one.agg.beta)


def _number(value: Tensor) -> str:
    return f"{round(value.item(), 2) + 0.0:.2f}"  # + 0.0: no "-0.00"


def _formula(one: Learned) -> str:
    if not hasattr(one.agg.f, "w"):
        return str(one.agg.f.formula)
    i = _heaviest(one)
    return f"{one.agg.f.channel(i).formula}  [dim]({one.agg.f.w[i].item():.0%})[/]"


def _draw(learned: list[Learned], folder: Path) -> None:
    try:
        from .experiments.pictures import draw_all

        console.print(f"Pictures of every f: {draw_all(learned, folder)}", highlight=False)
    except ModuleNotFoundError as error:
        console.print(f"No pictures without {error.name}: pip install 'fmean[cli]'", highlight=False)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Small graphs, few repetitions: less than a minute.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = BenchSettings.device,
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
        settings = BenchSettings(device, quick, tuple(workload or ()), tuple(method or ()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    run = Bench(settings, out or settings.out, _command(), fresh)
    for note in run.notes:
        console.print(note, highlight=False)
    if run.rows:
        console.print(f"Going on with {run.out}.", highlight=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    try:
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("", total=run.steps)
            for done, step in enumerate(run.run()):
                progress.update(bar, completed=done, description=step)
            progress.update(bar, completed=run.steps, description="")
    except WrongResultError as error:
        console.print(f"[red]{error}[/]", highlight=False)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        console.print(f"Stopped; what is complete is in {run.out}, and the same command goes on.", highlight=False)
        raise typer.Exit(130) from None
    _show(run.out)


def _show(path: Path) -> None:
    """The tables of a record of `fmean bench`, and its chart beside it."""
    record = json.loads(path.read_text(encoding="utf-8"))
    for case in grouped(record["rows"]):
        console.print(_bench_table(case))
    console.print(f"Record: {path}", highlight=False)
    try:
        console.print(f"Chart: {draw_bars(record, path.with_suffix('.png'))}", highlight=False)
    except ModuleNotFoundError as error:
        console.print(f"No chart without {error.name}: pip install 'fmean[cli]'", highlight=False)


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
