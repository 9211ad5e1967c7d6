"""The benchmark's figures, and its tables beside the paper's."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from ..paper import BENCHMARK, LEADERBOARD, OVERFITTING
from .aggregators import AGGREGATORS
from .protocols import CITATION, DATASETS, PROTOCOLS

__all__ = ["Figure", "figures", "learned", "markdown", "order"]

Row = dict[str, Any]


def order(row: Row) -> tuple[Any, ...]:
    """Where a row stands in the record."""
    return (
        list(PROTOCOLS).index(row["protocol"]),
        DATASETS.index(row["dataset"]),
        -row["share"],
        list(AGGREGATORS).index(row["aggregator"]),
        row["seed"],
    )


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
        return f"{self.test:.3f} ±{self.deviation:.3f}"


def figures(rows: list[Row], dataset: str, protocol: str, share: float = 1.0) -> dict[str, Figure]:
    """By aggregation: under `paper` the maximum over the epochs of the mean curve and the deviation there; under
    `standard` mean and deviation of what each seed's chosen epoch gave.

    >>> row = {"dataset": "pattern", "protocol": "paper", "aggregator": "mean", "share": 1.0, "epochs": 2}
    >>> row |= {"points": [1, 2], "train_curve": [0.1, 0.2], "train_accuracy": 0.2, "test_accuracy": 0.9, "epoch": 1}
    >>> found = figures([row | {"curve": [0.2, 0.4]}, row | {"curve": [0.6, 0.2]}], "pattern", "paper")
    >>> print(found["mean"], found["mean"].epoch)
    0.400 ±0.200 1
    """
    found = {}
    for name in AGGREGATORS:
        ours = [
            row
            for row in rows
            if (row["dataset"], row["protocol"], row["share"], row["aggregator"]) == (dataset, protocol, share, name)
        ]
        if ours:
            found[name] = _figure(ours, PROTOCOLS[protocol].chosen)
    return found


def _figure(rows: list[Row], chosen: bool) -> Figure:
    length = min(len(row["curve"]) for row in rows)  # a seed may have been asked for more epochs than others
    points = list(zip(*(row["curve"][:length] for row in rows), strict=True))
    train = [statistics.fmean(point) for point in zip(*(row["train_curve"][:length] for row in rows), strict=True)]
    mean, spread = [statistics.fmean(point) for point in points], [statistics.pstdev(point) for point in points]
    best = max(range(length), key=mean.__getitem__)
    test, deviation, most = mean[best], spread[best], max(train)
    if chosen:
        each = [row["test_accuracy"] for row in rows]
        test, deviation = statistics.fmean(each), statistics.pstdev(each)
        most = statistics.fmean(row["train_accuracy"] for row in rows)
        best = rows[0]["points"].index(rows[0]["epoch"])
    epochs, at = min(row["epochs"] for row in rows), rows[0]["points"]
    return Figure(test, deviation, most, at[best], epochs, len(rows), at[:length], mean, spread, train)


def _lines(heads: list[str], body: list[list[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(line)} |" for line in (heads, rule, *body)]


def _bold(found: dict[str, Figure], name: str) -> str:
    if name not in found:
        return "–"
    best = max(figure.test for figure in found.values())
    return f"**{found[name]}**" if found[name].test == best else str(found[name])


def _how(found: dict[str, Figure]) -> str:
    """How many seeds and epochs: of the least, where not all have as many."""
    return f"{min(one.seeds for one in found.values())} × {min(one.epochs for one in found.values())}"


def markdown(record: dict[str, Any]) -> str:
    """All tables for which there are rows."""
    rows = record["rows"]
    names = [name for name in AGGREGATORS if any(row["aggregator"] == name for row in rows)]
    parts = [_paper(rows, names), _standard(rows, names), _shares(rows), _citation(rows, names), _layers(rows)]
    return "\n".join(line for part in parts for line in part).strip() + "\n"


def _paper(rows: list[Row], names: list[str]) -> list[str]:
    body = []
    for dataset in DATASETS[:4]:
        found = figures(rows, dataset, "paper")
        if found:
            body.append([dataset.upper(), *(_bold(found, name) for name in names), _how(found)])
            # The paper's f is that of genagg-mlp; where that was not run, its figure stands beside another of ours.
            like = next((n for n in ("genagg-mlp", "genagg-sinh", "genagg-invertible") if n in names), "")
            theirs = [BENCHMARK[dataset].get("genagg" if name == like else name) for name in names]
            cells = [f"{pair[0]:.3f} ±{pair[1]:.2f}" if pair else "" for pair in theirs]
            body.append(["the paper's", *cells, "10 × 1000"])
    if not body:
        return []
    heads = ["", *(AGGREGATORS[name].title for name in names), "seeds × epochs"]
    return ["## Protocol of the paper: test accuracy", "", *_lines(heads, body), ""]


def _standard(rows: list[Row], names: list[str]) -> list[str]:
    body = []
    for dataset in DATASETS:
        found = figures(rows, dataset, "standard")
        if found:
            others = ", ".join(f"{name} {value:.3f}" for name, value in LEADERBOARD.get(dataset, {}).items())
            body.append([dataset.upper(), *(_bold(found, name) for name in names), _how(found), others])
    if not body:
        return []
    heads = ["", *(AGGREGATORS[name].title for name in names), "seeds × epochs", "leaderboard"]
    return ["## Protocol of the leaderboard: test accuracy", "", *_lines(heads, body), ""]


def _shares(rows: list[Row]) -> list[str]:
    """Train and test accuracy with less data: GenAgg's best f, the best baseline and the median one."""
    body = []
    for share, theirs in OVERFITTING.items():
        found = figures(rows, "pattern", "paper", share)
        ours = [figure for name, figure in found.items() if name.startswith("genagg")]
        baselines = [figure for name, figure in found.items() if not name.startswith(("genagg", "authors"))]
        if share == 1 and len({row["share"] for row in rows if row["dataset"] == "pattern"}) == 1:
            continue  # the first table has it
        if ours and baselines:
            cells = [f"{share:.0%}"]
            for part, at in (("train", 0), ("test", 1)):
                values = [getattr(figure, part) for figure in baselines]
                picked = [max(getattr(figure, part) for figure in ours), max(values), statistics.median(values)]
                cells += [
                    f"{value:.3f} ({their[at]:.3f})" for value, their in zip(picked, theirs.values(), strict=True)
                ]
            body.append(cells)
    if not body:
        return []
    heads = ["", *(f"{part}: {name}" for part in ("train", "test") for name in ("GenAgg", "best baseline", "median"))]
    return ["## PATTERN with less data; in brackets the paper's", "", *_lines(heads, body), ""]


def _citation(rows: list[Row], names: list[str]) -> list[str]:
    body = []
    for dataset in CITATION:
        found = figures(rows, dataset, "paper")
        for part in ("train", "test") if found else ():
            values = [f"{getattr(found[name], part):.3f}" if name in found else "–" for name in names]
            body.append([f"{dataset}, {part}", *values, _how(found)])
    if not body:
        return []
    heads = ["", *(AGGREGATORS[name].title for name in names), "seeds × epochs"]
    return ["## Citation networks: train and test accuracy", "", *_lines(heads, body), ""]


def learned(row: Row) -> list[str]:
    """Each layer's α, β and nearest standard aggregator, in words."""
    words = []
    for layer in row["layers"]:
        if "alpha" in layer:
            alpha = ", ".join(map(_short, layer["alpha"] if isinstance(layer["alpha"], list) else [layer["alpha"]]))
            near = f"{layer['nearest'].replace('_', ' ')} ({layer['correlation']:.2f})" if layer["nearest"] else "–"
            words.append(f"α {alpha}; β {_short(layer['beta'])}; {near}")
        else:
            words.append(_short(layer["parameter"]))
    return words


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _layers(rows: list[Row]) -> list[str]:
    """Of the first seed: the others are in the record."""
    body = []
    for row in rows:
        if row["aggregator"].startswith("genagg") and row["seed"] == 0 and row["share"] == 1 and row["layers"]:
            where = f"{row['dataset']}, {row['protocol']}, {AGGREGATORS[row['aggregator']].title}"
            body.append([where, *learned(row)])
    if not body:
        return []
    heads = ["", *(f"layer {i + 1}" for i in range(max(len(line) for line in body) - 1))]
    body = [line + [""] * (len(heads) - len(line)) for line in body]
    return [
        "## What the layers learned (seed 0): α, β, nearest standard aggregator (correlation)",
        "",
        *_lines(heads, body),
    ]
