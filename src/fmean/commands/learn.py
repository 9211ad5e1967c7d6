"""`fmean learn`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from ..checkpoint import save
from ..experiments.learn import MODELS, PAPER, Learned, Learner, Settings
from ..experiments.record import write_record
from ..standard import STANDARD
from .base import app, console, say, stopped, typed

__all__ = ["learn"]


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
        say(f"Learned already, in {folder}; say --fresh to learn anew.")
    else:
        if learner.step:
            say(f"Going on at step {learner.step}.")
        _train(learner, f"Learning {len(settings.targets)}")

    learned = learner.result()
    for one in learned:
        save(one.agg, folder / f"{one.target}.pt")
    write_record(
        folder / "table.json",
        typed(),
        [one.row() for one in learned],
        seconds=round(learner.seconds, 1),
    )
    console.print(_table(learned, f, learner.seconds))
    _draw(learned, folder)
    say(f'Use one: fmean.load("{folder / learned[0].target}.pt")')


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
        stopped(f"Stopped at step {learner.step} of {learner.settings.steps}; the same command goes on from here.")


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
        from ..experiments.pictures import draw_all

        say(f"Pictures of every f: {draw_all(learned, folder)}")
    except ModuleNotFoundError as error:
        say(f"No pictures without {error.name}: pip install 'fmean[cli]'")
