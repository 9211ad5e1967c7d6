"""How the aggregations of a model move during training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ..functions import Mixture
from ..genagg import GenAgg
from .curves import curve
from .nearest import likeness
from .sets import range_of
from .words import title

__all__ = ["History", "genaggs", "is_history"]

POINTS = 31  # at which an f without numbers that say something is recorded


def genaggs(model: nn.Module) -> dict[str, GenAgg]:
    """Every GenAgg of a model that learns, by its name in the model, each once."""
    found = {name or type(model).__name__: m for name, m in model.named_modules() if isinstance(m, GenAgg)}
    return {name: agg for name, agg in found.items() if agg.seen is not None}


def is_history(record: Any) -> bool:
    """Whether it is what `History.to_dict` gives."""
    if not (isinstance(record, Mapping) and isinstance(record.get("steps"), list)):
        return False
    layers, count = record.get("layers"), len(record["steps"])
    if not isinstance(layers, Mapping):
        return False

    def whole(values: Any) -> bool:
        return isinstance(values, list) and len(values) == count

    return all(
        isinstance(entry, Mapping)
        and all(whole(entry[name]) for name in ("alpha", "beta", "nearest") if name in entry)
        and isinstance(entry.get("parameters", {}), Mapping)
        and all(map(whole, entry.get("parameters", {}).values()))
        for entry in layers.values()
    )


class History:
    """α, β, the numbers of f and the nearest standard aggregator of every GenAgg in a model, over the steps.

    Of an f without numbers that say something, as an MLP, the curve is kept.

    Arguments:
        model: The model that is trained.
        every: Steps between two entries.
        writer: A TensorBoard `SummaryWriter`, which gets every entry, too.
        sets: How many sets the standard aggregators are compared on: few, for this is done during training.

    Example:
        >>> model = nn.Sequential(GenAgg())
        >>> history = History(model, every=10)
        >>> for _ in range(30):  # the steps of training
        ...     history.step()
        >>> history.steps
        [0, 10, 20]
        >>> history.layers["0"]["alpha"][0]
        [0.0, 0.0, 0.0]

    With Lightning: `Trainer(callbacks=[history.lightning()])`.
    """

    def __init__(self, model: nn.Module, every: int = 100, writer: Any = None, sets: int = 300) -> None:
        if every < 1:
            raise ValueError(f"every must be 1 or more, got {every}")
        self.aggregations = genaggs(model)
        if not self.aggregations:
            raise ValueError(f"there is no GenAgg that learns in {type(model).__name__}")
        self.every, self.writer, self.sets = every, writer, sets
        self.calls = 0
        self.steps: list[int] = []
        self.layers: dict[str, dict[str, Any]] = {
            name: {"alpha": [], "beta": [], "nearest": [], "parameters": {}} for name in self.aggregations
        }

    def step(self) -> None:
        """To be called at every step of training: makes an entry at the first, and at every `every`-th."""
        if self.calls % self.every == 0:
            self.record(self.calls)
        self.calls += 1

    def record(self, step: int) -> None:
        """Makes an entry now."""
        self.steps.append(step)
        for name, agg in self.aggregations.items():
            entry, (nearest, r) = self.layers[name], _nearest(agg, self.sets)
            entry["alpha"].append(_means(agg.alpha, agg.channels))
            entry["beta"].append(_means(agg.beta, agg.channels))
            entry["nearest"].append([nearest, round(r, 5)])
            numbers = _numbers(agg)
            for label, value in numbers.items():
                entry["parameters"].setdefault(label, []).append(round(value, 5))
            if not numbers:
                entry.setdefault("curves", []).append(_curves(agg))
            if self.writer is not None:
                self._write(name, entry, step)

    def _write(self, name: str, entry: dict[str, Any], step: int) -> None:
        numbers = {f"alpha/{i}": v for i, v in enumerate(entry["alpha"][-1])} | {"beta": entry["beta"][-1][0]}
        numbers |= {label: values[-1] for label, values in entry["parameters"].items()}
        nearest, r = entry["nearest"][-1]
        for label, value in (numbers | {f"like/{nearest}": r}).items():
            self.writer.add_scalar(f"{name}/{label}", value, step)
        self.writer.add_text(f"{name}/nearest", f"{title(nearest)} ({r:.3f})", step)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON and for a checkpoint; `fmean.report` draws them."""
        return {"steps": self.steps, "layers": self.layers, "calls": self.calls}

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from what `to_dict` gave, as after a stop."""
        if set(state["layers"]) != set(self.layers):
            raise ValueError(f"the history is of {sorted(state['layers'])}, the model has {sorted(self.layers)}")
        self.steps, self.layers = list(state["steps"]), state["layers"]
        self.calls = state.get("calls", self.steps[-1] + 1 if self.steps else 0)

    def save(self, path: str | Path) -> None:
        """Writes `to_dict` as JSON."""
        Path(path).write_text(json.dumps(self.to_dict()), encoding="utf-8")

    def plot(self, path: str | Path) -> Path:
        """Draws all of it into a file: PNG, SVG or PDF, by its suffix."""
        from .pictures import draw_history

        return draw_history(self.to_dict(), Path(path))

    def lightning(self) -> Any:
        """A callback for Lightning's Trainer, which calls `step` after every batch."""
        try:
            from pytorch_lightning import Callback
        except ModuleNotFoundError:
            from lightning.pytorch import Callback  # type: ignore[import-not-found]
        history = self

        class Recorder(Callback):  # type: ignore[misc]
            def on_train_batch_end(self, *_: Any, **__: Any) -> None:
                history.step()

            def state_dict(self) -> dict[str, Any]:
                return history.to_dict()

            def load_state_dict(self, state: dict[str, Any]) -> None:
                history.load(state)

        return Recorder()


def _nearest(agg: GenAgg, sets: int) -> tuple[str, float]:
    found = likeness(agg, sets)
    if agg.channels == 1:
        return found.nearest(0)[0]
    names = [found.nearest(i)[0] for i in range(agg.channels)]
    common = max({name for name, _ in names}, key=lambda name: (sum(n == name for n, _ in names), name))
    mine = [r for name, r in names if name == common]
    return common, sum(mine) / len(mine)


def _curves(agg: GenAgg) -> dict[str, Any]:
    """Every channel of f over the values it has met so far; of several features the first."""
    one = agg.feature(0)
    low, _, high = range_of(one).values
    drawn = curve(one, low, high if high > low else low + 1e-6, points=POINTS)
    return {"x": drawn["x"], "y": [channel["y"] for channel in drawn["channels"]]}


def _means(value: Any, channels: int) -> list[float]:
    """The numbers of α or β, where features have their own the means over them."""
    value = value.detach().double().cpu()
    value = value.mean(0) if channels > 1 else value
    return [round(v, 5) for v in value.flatten().tolist()]


def _numbers(agg: GenAgg) -> dict[str, float]:
    """The numbers of f that a person can read: p, q, c and w of a mixture, or of f alone."""
    mixed = isinstance(agg.f, Mixture)
    parts = list(agg.f.parts) if mixed else [agg.f]
    numbers = {}
    for i, part in enumerate(parts):
        for name in ("p", "q", "c"):
            value = getattr(part, name, None)
            if isinstance(value, Tensor):
                numbers[f"{name}{i + 1 if mixed else ''}"] = float(value.detach().mean())
    if mixed:
        w = agg.f.w.detach().reshape(-1, agg.f.k).mean(0)
        numbers |= {f"w{i + 1}": v for i, v in enumerate(w.tolist())}
    return numbers
