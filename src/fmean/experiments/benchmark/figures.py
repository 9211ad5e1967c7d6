"""The benchmark's figures, over the seeds: which rows may be averaged, and what they come to."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .aggregators import AGGREGATORS
from .protocols import CITATION, PROTOCOLS

__all__ = ["Figure", "Row", "alike", "caption", "figures", "made_on"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """What the runs of one aggregation on one data set came to, over their seeds."""

    test: float
    deviation: float
    train: float
    epoch: int
    """Of the maximum; of the first seed, where each seed has its own."""
    epochs: int
    seeds: int
    points: list[int]
    mean: list[float]
    spread: list[float]
    train_mean: list[float]

    def __str__(self) -> str:
        # One seed has no deviation.
        return f"{self.test:.3f} ±{self.deviation:.3f}" if self.seeds > 1 else f"{self.test:.3f}"


def alike(rows: list[Row]) -> tuple[list[Row], int]:
    """Of the rows of one table those that may stand beside each other, and how many others there are.

    These are the rows of the settings that most rows have and, of each aggregation on each data set, those that were
    trained for most epochs.

    >>> one = {"dataset": "mnist", "aggregator": "mean", "share": 1.0, "epochs": 2, "settings": {"factor": 10.0}}
    >>> rows = [one | {"seed": seed} for seed in range(4)]
    >>> rows[1]["epochs"], rows[3]["settings"] = 1, {"factor": 1.0}
    >>> kept, left = alike(rows)
    >>> [row["seed"] for row in kept], left
    ([0, 2], 2)
    """
    kept: list[Row] = []
    for one in _groups(_most(rows, _common), lambda row: (row["dataset"], row["share"])).values():
        for same in _groups(_most(one, _whole), lambda row: row["aggregator"]).values():
            longest = max(row["epochs"] for row in same)
            kept += [row for row in same if row["epochs"] == longest]
    return kept, len(rows) - len(kept)


def _whole(row: Row) -> str:
    """The settings, but for the number of epochs."""
    settings = row.get("settings", {})
    return json.dumps({name: value for name, value in settings.items() if name != "epochs"}, sort_keys=True)


def _common(row: Row) -> str:
    """What the rows of a table have in common: not what hangs on the data set and its share."""
    own = ("epochs", "every", "batch_size") if row["dataset"] in CITATION else ("epochs", "every")
    settings = row.get("settings", {})
    return json.dumps({name: value for name, value in settings.items() if name not in own}, sort_keys=True)


def _groups(rows: list[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _most(rows: list[Row], key: Callable[[Row], Any]) -> list[Row]:
    """The largest group, and of equally large ones the first."""
    return max(_groups(rows, key).values(), key=len, default=[])


def caption(kept: list[Row], left: int) -> str:
    """What has to be known of the rows of a table, of which so many others are left out."""
    words = []
    factors = [row["settings"]["factor"] for row in kept if "factor" in row.get("settings", {})]
    if factors:
        theirs = "" if factors[0] == 1 else " (paper: 1)"
        words.append(f"Factor of the learning rate of every aggregation's own parameters: {factors[0]:g}{theirs}.")
    clip = kept[0].get("settings", {}).get("clip") if kept else None
    if clip is not None:
        words.append(f"Gradients were clipped at a norm of {clip:g}, which the paper's were not.")
    if any((row["aggregator"], row["protocol"]) == ("genagg-mlp", "paper") for row in kept):
        title = AGGREGATORS["genagg-mlp"].title
        words.append(f"{title} has no BatchNorm within f, which the paper's has, and the inversion objective at 0.1.")
    if left:
        words.append(f"Left out: {left} {'row' if left == 1 else 'rows'} with other settings or of fewer epochs.")
    return " ".join(words)


def made_on(rows: Iterable[Row]) -> list[str]:
    """The machines of these rows, with the torch that was there.

    >>> made_on([{"machine": "a PC", "torch": "2.13"}, {"machine": "a PC", "torch": "2.13"}])
    ['a PC, torch 2.13']
    """
    return list(dict.fromkeys(f"{row['machine']}, torch {row['torch']}" for row in rows if "machine" in row))


def figures(rows: list[Row], dataset: str, protocol: str, share: float = 1.0) -> dict[str, Figure]:
    """By aggregation: under `paper` the maximum over the epochs of the mean curve and the deviation there; under
    `standard` mean and deviation of what each seed's chosen epoch gave. Only rows that are `alike` count.

    >>> row = {"dataset": "pattern", "protocol": "paper", "aggregator": "mean", "share": 1.0, "epochs": 2}
    >>> row |= {"points": [1, 2], "train_curve": [0.1, 0.2], "train_accuracy": 0.2, "test_accuracy": 0.9, "epoch": 1}
    >>> found = figures([row | {"curve": [0.2, 0.4]}, row | {"curve": [0.6, 0.2]}], "pattern", "paper")
    >>> print(found["mean"], found["mean"].epoch)
    0.400 ±0.200 1
    """
    where = (dataset, protocol, share)
    kept, _ = alike([row for row in rows if (row["dataset"], row["protocol"], row["share"]) == where])
    found = {}
    for name in AGGREGATORS:
        ours = [row for row in kept if row["aggregator"] == name]
        if ours:
            found[name] = _figure(ours, PROTOCOLS[protocol].chosen)
    return found


def _figure(rows: list[Row], chosen: bool) -> Figure:
    points = list(zip(*(row["curve"] for row in rows), strict=True))
    train = [statistics.fmean(point) for point in zip(*(row["train_curve"] for row in rows), strict=True)]
    mean, spread = [statistics.fmean(point) for point in points], [statistics.pstdev(point) for point in points]
    best = max(range(len(mean)), key=mean.__getitem__)
    test, deviation, most = mean[best], spread[best], max(train)
    if chosen:
        each = [row["test_accuracy"] for row in rows]
        test, deviation = statistics.fmean(each), statistics.pstdev(each)
        most = statistics.fmean(row["train_accuracy"] for row in rows)
        best = rows[0]["points"].index(rows[0]["epoch"])
    at = rows[0]["points"]
    return Figure(test, deviation, most, at[best], rows[0]["epochs"], len(rows), at, mean, spread, train)
