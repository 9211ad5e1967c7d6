"""Where f should begin: the benchmark's networks with each start in turn, tested on the official validation split.

python benchmarks/starts.py [--dataset cifar10 …] [--start c2p3 …] [--epochs 20] [--seeds 1] [--clip 1] [--factor 1]

A start is the name of one of the benchmark's aggregations, or `c2p3`: f(x) = sinh(p·x + c) from c = 2 and p = 3;
`c2p3x` has c and p of each feature, and `c2p3+c0p1x` begins with one and the other in turn.
Stopped (Ctrl-C, SIGTERM), it writes what all curves have come to; the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fmean import GenAgg
from fmean.experiments.benchmark import scheduler
from fmean.experiments.benchmark.aggregators import AGGREGATORS, Aggregator
from fmean.experiments.benchmark.runs import Job, Run, Settings
from fmean.experiments.benchmark.store import Store
from fmean.experiments.record import write_record
from fmean.functions import SinhLinear

STARTS = ["c0p1", "c1p2", "c2p1", "c2p3", "c2p6", "c3p3", "c4p3", "c2p3x"]


def maker(start: str) -> Callable[[int], nn.Module]:
    """What makes the GenAgg that begins so."""
    pairs = [re.fullmatch(r"c(-?[\d.]+)p([\d.]+)", pair) for pair in start.removesuffix("x").split("+")]
    if not all(pairs):
        raise SystemExit(f"unknown start {start!r}")
    c, p = ([float(pair[i]) for pair in pairs if pair] for i in (1, 2))

    def make(features: int) -> nn.Module:
        if not start.endswith("x"):
            return GenAgg(SinhLinear(1, c[0], p[0]))
        turns = [[values[i % len(values)] for i in range(features)] for values in (c, p)]
        return GenAgg(SinhLinear(features, *turns), channels=features)

    return make


def say(store: Store, names: list[str], over: threading.Event) -> None:
    began = time.monotonic()
    while not over.wait(15):
        now = store.progress(names)
        print(f"{time.monotonic() - began:6.0f} s  {now.finished} of {now.runs} runs, ", end="")
        print(f"{now.epochs_done:.1f} of {now.epochs} epochs", flush=True)


def so_far(job: Job, place: scheduler.Place) -> dict[str, Any] | None:
    """The curve of a run that has not ended."""
    path = place.checkpoint(job.run.name)
    if not path.exists():
        return None
    state = torch.load(path, map_location="cpu", weights_only=True)
    run, curves = job.run, state["curves"]
    about = {"dataset": run.dataset, "aggregator": run.aggregator, "seed": run.seed, "settings": job.identity}
    return about | {"epochs": state["epoch"], "curve": curves["test"], "train_curve": curves["train"]}


def recorded(out: Path) -> list[dict[str, Any]]:
    return json.loads(out.read_text(encoding="utf-8"))["rows"] if out.exists() else []


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["dataset"], row["epochs"], row["aggregator"], row["seed"], str(row["settings"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", action="append")
    parser.add_argument("--start", action="append")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--clip", type=float)
    parser.add_argument("--factor", type=float, default=1.0)
    parser.add_argument("--lanes", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("results/starts.json"))
    parser.add_argument("--folder", type=Path, default=Path("reproduced/starts"))
    words = parser.parse_args()
    starts = words.start or STARTS
    for one in starts:
        if one not in AGGREGATORS:
            AGGREGATORS[one] = Aggregator(maker(one), True, title=one)
    settings = Settings(epochs=words.epochs, clip=words.clip, factor=words.factor)
    runs = [
        Run(dataset, "tuning", one, seed, words.share)
        for dataset in words.dataset or ["cifar10", "cluster"]
        for seed in range(words.seeds)
        for one in starts
    ]
    jobs = [Job.of(run, settings) for run in runs]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lanes = words.lanes if device == "cuda" else 1
    place = scheduler.Place(words.folder.resolve(), device, lanes=lanes, save_every=60.0)
    store, names = Store(place.store), [job.run.name for job in jobs]
    store.plan(jobs)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: scheduler.stop())
    over = threading.Event()
    threading.Thread(target=say, args=(store, names, over), daemon=True).start()
    scheduler.here(jobs, place)
    over.set()
    finished = {Run.of(row).name: row for row in store.rows(names)}
    rows = [finished.get(job.run.name) or so_far(job, place) for job in jobs]
    found = [row for row in rows if row is not None]
    kept = {key(row): row for row in [*recorded(words.out), *found]}
    write_record(words.out, "python benchmarks/starts.py", list(kept.values()))
    for row in found:
        curve = row["curve"] or [0.0]
        last = " ".join(f"{value:.3f}" for value in curve[-3:])
        print(
            f"{row['dataset']:8} {row['aggregator']:18} seed {row['seed']} epochs {row['epochs']:3} "
            f"best {max(curve):.4f} last {last} train {max(row['train_curve'] or [0]):.3f} {row.get('seconds', '')}"
        )
    for name, why in store.failures(names).items():
        print(f"failed: {name}: {why}")


if __name__ == "__main__":
    main()
