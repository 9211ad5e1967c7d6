"""The benchmark's tables beside the paper's."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from ..paper import BENCHMARK, LEADERBOARD, OVERFITTING
from .aggregators import AGGREGATORS
from .figures import Figure, Row, alike, caption, figures
from .protocols import CITATION, DATASETS, PROTOCOLS

__all__ = ["learned", "markdown", "order"]


def order(row: Row) -> tuple[Any, ...]:
    """Where a row stands in the record."""
    return (
        list(PROTOCOLS).index(row["protocol"]),
        DATASETS.index(row["dataset"]),
        -row["share"],
        list(AGGREGATORS).index(row["aggregator"]),
        row["seed"],
    )


def _lines(heads: list[str], body: list[list[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(line)} |" for line in (heads, rule, *body)]


def _bold(found: dict[str, Figure], name: str) -> str:
    if name not in found:
        return "–"
    best = max(figure.test for figure in found.values())
    return f"**{found[name]}**" if found[name].test == best else str(found[name])


def _how(found: dict[str, Figure]) -> str:
    """How many seeds and epochs: the least and the most, where not all have as many."""
    numbers = [sorted({getattr(one, name) for one in found.values()}) for name in ("seeds", "epochs")]
    return " × ".join(str(few[0]) if len(few) == 1 else f"{few[0]}–{few[-1]}" for few in numbers)


def _chosen(rows: list[Row], protocol: str, datasets: Iterable[str]) -> tuple[list[Row], list[str], list[str]]:
    """The rows of a table, their aggregations, and what is said beneath it."""
    kept, left = alike([row for row in rows if row["protocol"] == protocol and row["dataset"] in datasets])
    said = caption(kept, left)
    names = [name for name in AGGREGATORS if any(row["aggregator"] == name for row in kept)]
    return kept, names, ["", said, ""] if said else [""]


def markdown(record: dict[str, Any]) -> str:
    """All tables for which there are rows."""
    rows = record["rows"]
    shares = sorted({row["share"] for row in rows}, reverse=True)
    parts = [table(rows, share) for table in (_paper, _standard, _tuning) for share in shares]
    parts += [_shares(rows), _citation(rows), _layers(rows)]
    return "\n".join(line for part in parts for line in part).strip() + "\n"


def _of(share: float) -> str:
    """
    >>> _of(0.1), _of(1.0)
    (', 10% of the data', '')
    """
    return "" if share == 1 else f", {share:.0%} of the data"


def _paper(rows: list[Row], share: float) -> list[str]:
    """Beside the paper's, where all the data were used."""
    return _plain(rows, share, "paper", f"Protocol of the paper{_of(share)}: test accuracy")


def _tuning(rows: list[Row], share: float) -> list[str]:
    return _plain(rows, share, "tuning", f"Tuning{_of(share)}: accuracy on the validation split")


def _plain(rows: list[Row], share: float, protocol: str, title: str) -> list[str]:
    rows, names, beneath = _chosen([row for row in rows if row["share"] == share], protocol, DATASETS[:4])
    body = []
    for dataset in DATASETS[:4]:
        found = figures(rows, dataset, protocol, share)
        if found:
            body.append([dataset.upper(), *(_bold(found, name) for name in names), _how(found)])
        if found and share == 1 and protocol == "paper":
            # The paper's f is that of genagg-mlp; where that was not run, its figure stands beside another of ours.
            like = next((n for n in ("genagg-mlp", "genagg-sinh", "genagg-invertible") if n in names), "")
            theirs = [BENCHMARK[dataset].get("genagg" if name == like else name) for name in names]
            cells = [f"{pair[0]:.3f} ±{pair[1]:.2f}" if pair else "" for pair in theirs]
            body.append(["the paper's", *cells, "10 × 1000"])
    if not body:
        return []
    heads = ["", *(AGGREGATORS[name].title for name in names), "seeds × epochs"]
    return [f"## {title}", "", *_lines(heads, body), *beneath]


def _standard(rows: list[Row], share: float) -> list[str]:
    """Beside the leaderboard's, where all the data were used."""
    rows, names, beneath = _chosen([row for row in rows if row["share"] == share], "standard", DATASETS)
    body = []
    for dataset in DATASETS:
        found = figures(rows, dataset, "standard", share)
        if found:
            known = LEADERBOARD.get(dataset, {}) if share == 1 else {}
            others = ", ".join(f"{name} {value:.3f}" for name, value in known.items())
            body.append([dataset.upper(), *(_bold(found, name) for name in names), _how(found), others])
    if not body:
        return []
    heads = ["", *(AGGREGATORS[name].title for name in names), "seeds × epochs", "leaderboard"]
    return [f"## Protocol of the leaderboard{_of(share)}: test accuracy", "", *_lines(heads, body), *beneath]


def _shares(rows: list[Row]) -> list[str]:
    """Train and test accuracy with less data: GenAgg's best f, the best baseline and the median one."""
    rows, _, beneath = _chosen(rows, "paper", ("pattern",))
    body = []
    for share, theirs in OVERFITTING.items():
        found = figures(rows, "pattern", "paper", share)
        ours = [figure for name, figure in found.items() if name.startswith("genagg")]
        baselines = [figure for name, figure in found.items() if not name.startswith(("genagg", "authors"))]
        if share == 1 and len({row["share"] for row in rows}) == 1:
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
    return ["## PATTERN with less data; in brackets the paper's", "", *_lines(heads, body), *beneath]


def _citation(rows: list[Row]) -> list[str]:
    rows, names, beneath = _chosen(rows, "paper", CITATION)
    body = []
    for dataset in CITATION:
        found = figures(rows, dataset, "paper")
        for part in ("train", "test") if found else ():
            values = [f"{getattr(found[name], part):.3f}" if name in found else "–" for name in names]
            body.append([f"{dataset}, {part}", *values, _how(found)])
    if not body:
        return []
    heads = ["", *(AGGREGATORS[name].title for name in names), "seeds × epochs"]
    return ["## Citation networks: train and test accuracy", "", *_lines(heads, body), *beneath]


def learned(row: Row) -> list[str]:
    """Each layer's α, β and nearest standard aggregator, in words."""
    words = []
    for layer in row["layers"]:
        if "alpha" in layer:
            alpha, beta = _numbers(layer["alpha"]), _numbers(layer["beta"])
            near = f"{layer['nearest'].replace('_', ' ')} ({layer['correlation']:.2f})" if layer["nearest"] else "–"
            words.append(f"α {alpha}; β {beta}; {near}")
        else:
            words.append(_short(layer["parameter"]))
    return words


def _numbers(values: Any) -> str:
    """One number, those of a few channels, or of many features their mean and standard deviation.

    >>> _numbers(0.5), _numbers([0.1, 0.2, 0.3]), _numbers([0.1, 0.3] * 8)
    ('0.50', '0.10, 0.20, 0.30', '0.20 ±0.10')
    """
    values = values if isinstance(values, list) else [values]
    if len(values) <= 4 or None in values:
        return ", ".join(map(_short, values[:4])) + ", …" * (len(values) > 4)
    return f"{statistics.mean(values):.2f} ±{statistics.pstdev(values):.2f}"


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _layers(rows: list[Row]) -> list[str]:
    """Of the first seed: the others are in the record."""
    body = []
    most: dict[tuple[str, str], float] = {}  # of a set's shares the largest
    for row in rows:
        key = row["dataset"], row["protocol"]
        most[key] = max(most.get(key, 0.0), row["share"])
    whole = [row for row in rows if row["share"] == most[row["dataset"], row["protocol"]]]
    for row in (row for protocol in PROTOCOLS for row in _chosen(whole, protocol, DATASETS)[0]):
        if row["aggregator"].startswith("genagg") and row["seed"] == 0 and row["layers"]:
            where = f"{row['dataset']}, {row['protocol']}, {AGGREGATORS[row['aggregator']].title}{_of(row['share'])}"
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
