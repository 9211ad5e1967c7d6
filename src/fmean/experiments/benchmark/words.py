"""The options of the benchmark's command, for both of its forms: their type and what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .aggregators import AGGREGATORS
from .protocols import DATASETS, PROTOCOLS

__all__ = ["OPTIONS"]

OPTIONS: dict[str, tuple[Any, str]] = {
    "quick": (bool, "PATTERN and CLUSTER with 10 % of their graphs, three aggregators, 5 epochs: a few minutes."),
    "appendix": (bool, "The citation networks, and PATTERN with 100, 10 and 1 % of its data."),
    "dataset": ([str], f"{', '.join(DATASETS)}. (default: the first four)"),
    "protocol": ([str], f"{', '.join(PROTOCOLS)}. (default: paper)"),
    "aggregator": ([str], f"{', '.join(AGGREGATORS)}. (default: all that are installed)"),
    "seeds": (int, "How many trainings of each. (default: 3)"),
    "share": ([float], "Train on this share of the training graphs. (default: 1)"),
    "epochs": (
        int,
        "(default: 60 for PATTERN and CLUSTER, 20 for MNIST and CIFAR10, 200 for the rest; more with a share)",
    ),
    "batch_size": (int, "Graphs. (default: 32, or 64 in the standard protocol)"),
    "learning_rate": (float, "Adam's. (default: 0.001)"),
    "factor": (float, "Times as fast as the network every aggregation's own parameters learn. (default: 1)"),
    "clip": (float, "The largest norm of a step's gradient, of every aggregation alike. (default: none)"),
    "hidden": (int, "Features within the network. (default: 64)"),
    "layers": (int, "GraphConv layers. (default: 4)"),
    "head": (str, "The postprocessor's inner sizes: wide (hidden) or narrow (classes). (default: wide)"),
    "precision": (str, "32-true, bf16-mixed or 16-mixed. (default: 32-true)"),
    "source": (str, "made, or published: the graphs that the benchmark's authors give out. (default: made)"),
    "device": (str, "cpu, cuda or cuda:NUMBER. (default: cuda, if there is one)"),
    "devices": (int, "Spread each run over so many. (default: 1)"),
    "compile": (bool, "Take the network through torch.compile."),
    "workers": (int, "Processes. (default: one for each core; 1 on a GPU, where several would take turns)"),
    "lanes": (int, "Runs at a time in each process. (default: 1; 16 on a GPU)"),
    "save_every": (float, "Seconds between two checkpoints of a run. (default: 30)"),
    "ray": (bool, "Spread the runs over a Ray cluster."),
    "ray_address": (str, "Of the cluster; implies --ray, which without it makes one of this machine."),
    "out": (Path, "The record (JSON); tables and plots beside it. (default: results/benchmark.json)"),
    "folder": (Path, "Store, checkpoints and models. (default: reproduced/benchmark)"),
    "fresh": (bool, "Begin these runs anew."),
}
