"""Time to make a batch of 32 MNIST graphs, in epochs of shuffled batches, beside PyG's DataLoader on the same graphs.

PyG's is measured on its own kind of data set (`InMemoryDataset`, as `GNNBenchmarkDataset` is one), in its first epoch
and later ones, when it has every graph apart; and on a list of `Data`, its best case. All take turns in one run.
Needs the data set (`fmean data build mnist`). Writes results/loader.json.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from typing import Any

import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from fmean.data import GraphSet, Loader, load
from fmean.experiments.record import write_record

BATCH, ROUNDS = 32, 6


class Kept(InMemoryDataset):  # type: ignore[misc]
    """Graphs as PyG keeps a data set."""

    def __init__(self, graphs: list[Data]) -> None:
        super().__init__()
        self.data, self.slices = self.collate(graphs)


def milliseconds(batches: Iterable[Any], device: str) -> float:
    """For one batch."""
    began, made = time.perf_counter(), 0
    for batch in batches:
        if isinstance(batch, Data):
            batch.to(device)
        made += 1
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / made * 1e3


def compare(graphs: GraphSet, device: str) -> dict[str, Any]:
    listed = [graphs.graph(i) for i in range(len(graphs))]
    kinds: dict[str, Iterable[Any]] = {
        "fmean": Loader(graphs.to(device), BATCH, shuffle=True),
        "pyg": DataLoader(Kept(listed), BATCH, shuffle=True),
        "pyg_list": DataLoader(listed, BATCH, shuffle=True),
    }
    rounds = [{kind: milliseconds(batches, device) for kind, batches in kinds.items()} for _ in range(ROUNDS)]
    row: dict[str, Any] = {"device": device, "graphs": len(graphs), "batch_size": BATCH}
    row["pyg_first_epoch_ms"] = round(rounds[0]["pyg"], 4)
    row |= {f"{kind}_ms": round(statistics.median(each[kind] for each in rounds[1:]), 4) for kind in kinds}
    for kind in ("pyg", "pyg_list"):
        ratios = [each[kind] / each["fmean"] for each in rounds[1:]]
        row[f"{kind}_ratio"] = round(statistics.median(ratios), 1)
    return row


if __name__ == "__main__":
    torch.set_num_threads(1)  # batches are made beside training, which wants the other cores
    graphs = load("mnist")
    rows = [compare(graphs, device) for device in ("cpu", "cuda") if device == "cpu" or torch.cuda.is_available()]
    write_record("results/loader.json", "python benchmarks/loader.py", rows, threads=torch.get_num_threads())
    for row in rows:
        print(row)
