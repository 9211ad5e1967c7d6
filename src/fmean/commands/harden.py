"""`fmean harden`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import track
from rich.table import Table

from ..experiments.record import write_record
from ..explain.harden import harden as harden_model
from ..explain.words import title
from .base import app, console, fail, say, typed

__all__ = ["harden"]


@app.command()
def harden(
    model: Annotated[Path, typer.Argument(help="A model that fmean reproduce benchmark wrote.")],
    threshold: Annotated[
        list[float] | None, typer.Option(help="The correlation from which on to replace; may be repeated. (0.99)")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A data set, as in fmean data: a and b are fitted on it, and accuracy is measured."),
    ] = None,
    split: Annotated[str, typer.Option(help="Which part of it: train, val or test.")] = "test",
    out: Annotated[Path | None, typer.Option(help="A record (JSON) of what was replaced, and of the accuracy.")] = None,
) -> None:
    """Replaces every GenAgg of a model by the standard aggregator it is most like, and says what that costs."""
    try:
        from ..experiments.benchmark import accuracy, load_model

        trained, info = load_model(model)
        graphs = _graphs(data, split) if data else None
        run = _run(data, "train" if split != "train" else "val") if data else None
        rows: list[dict[str, Any]] = []
        for limit in track(threshold or [0.99], "Hardening", console=console, transient=True):
            for calibrate in (True, False):
                hardened = harden_model(trained, limit, calibrate, run)
                row = {
                    "threshold": limit,
                    "calibrated": calibrate,
                    "replaced": sum(one.replaced for one in hardened.hardened),
                    "of": len(hardened.hardened),
                    "layers": [vars(one) for one in hardened.hardened],
                }
                if graphs is not None:
                    row["accuracy"] = accuracy(hardened, graphs, 32)
                rows.append(row)
        before = None if graphs is None else accuracy(trained, graphs, 32)
    except (ValueError, OSError, ModuleNotFoundError) as error:
        fail(str(error))
    for layer in rows[0]["layers"]:
        where = layer["layer"] if layer["feature"] is None else f"{layer['layer']}[{layer['feature']}]"
        like = f"{title(layer['nearest'])} ({layer['correlation']:.4f})"
        say(f"{where}: nearest {like}")
    console.print(_table(rows, before))
    if out is not None:
        more = {"model": info, "data": data, "split": split, "accuracy_before": before}
        write_record(out, typed(), rows, **more)
        say(f"Record: {out}")


def _graphs(name: str, split: str) -> Any:
    from ..data import load

    return load(name, split)


def _run(name: str, split: str, graphs: int = 128) -> Any:
    """What runs a model on some graphs, other than those that accuracy is measured on."""
    from ..data import Loader
    from ..experiments.benchmark import answer

    batch = next(iter(Loader(_graphs(name, split), graphs, shuffle=True).epoch(0)))
    return lambda model: answer(model, batch)


def _table(rows: list[dict[str, Any]], before: float | None) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in ("threshold", "replaced", "as a·⊕ + b", *(["accuracy before", "after"] if before is not None else [])):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        cells = [f"{row['threshold']:g}", f"{row['replaced']} of {row['of']}", "yes" if row["calibrated"] else "no"]
        if before is not None:
            cells += [f"{before:.4f}", f"{row['accuracy']:.4f}"]
        table.add_row(*cells)
    return table
