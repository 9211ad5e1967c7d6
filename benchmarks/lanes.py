"""Steps of the GNN benchmark on a GPU: as a loop of calls, as CUDA graphs, and several of these side by side.

python benchmarks/lanes.py [--dataset pattern …] [--lanes 8 …] [--out results/lanes.json]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from fmean.experiments.benchmark.aggregators import AGGREGATORS
from fmean.experiments.benchmark.runs import Job, Run, Settings
from fmean.experiments.benchmark.training import Trainer
from fmean.experiments.record import write_record

ALL = [name for name, one in AGGREGATORS.items() if not one.package]
STEPS = 192


def milliseconds(steps: list[Iterator[Any]], count: int) -> float:
    """Of each step, where so many trainings take as many steps each in turn."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(count):
        for one in steps:
            next(one)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / (count * len(steps)) * 1e3


def chunks(trainer: Trainer) -> Iterator[int]:
    """The chunks of an epoch, without those that only wait."""
    assert trainer.captured is not None
    yield from (n for n in trainer.captured.epoch(0, trainer.loader.order(0), 0) if n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", action="append")
    parser.add_argument("--lanes", type=int, action="append")
    parser.add_argument("--aggregator", action="append")
    parser.add_argument("--out", type=Path, default=Path("results/lanes.json"))
    words = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for dataset in words.dataset or ["pattern", "cluster"]:
        for name in words.aggregator or ALL:
            job = Job.of(Run(dataset, "paper", name, 0), Settings(epochs=1))
            row: dict[str, Any] = {"dataset": dataset, "aggregator": name}
            loop = Trainer(job, device="cuda", captured=False)._steps()
            next(islice(loop, 4, None))
            row["loop_ms"] = round(milliseconds([loop], 20), 4)
            for lanes in [1, *(words.lanes or [8])]:
                began = time.perf_counter()
                trainers = [Trainer(job, device="cuda") for _ in range(lanes)]
                sides = [chunks(trainer) for trainer in trainers]
                for side in sides:
                    next(side)
                torch.cuda.synchronize()
                row[f"start_{lanes}_s"] = round((time.perf_counter() - began) / lanes, 3)
                per_chunk = milliseconds(sides, STEPS // 64)
                row[f"graph_{lanes}_ms"] = round(per_chunk / 64, 4)
                del trainers, sides
                torch.cuda.empty_cache()
            print(row, flush=True)
            rows.append(row)
    write_record(words.out, "python benchmarks/lanes.py", rows)


if __name__ == "__main__":
    main()
