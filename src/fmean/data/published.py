"""The graphs as their authors published them, downloaded by PyG."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

from .graphs import GraphSet, from_data
from .places import MissingError
from .planetoid import CITATIONS, of_planetoid

__all__ = ["published"]

# Task and classes.
KINDS = {"pattern": ("node", 2), "cluster": ("node", 6), "mnist": ("graph", 10), "cifar10": ("graph", 10)}


def published(name: str, split: str, folder: Path) -> GraphSet:
    """One split of a published data set; PyG downloads it into `folder`, unless it lies there already."""
    from torch_geometric.datasets import GNNBenchmarkDataset, Planetoid

    try:
        if name in CITATIONS:
            return of_planetoid(Planetoid(str(folder), CITATIONS[name]), name)
        task, classes = KINDS[name]
        return from_data(GNNBenchmarkDataset(str(folder), name.upper(), split), name, task, classes)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise MissingError(
            f"PyG could not load the published {name} ({type(error).__name__}: {error}); it needs a network. "
            f"If a download was cut short, delete {folder / CITATIONS.get(name, name.upper())}; "
            "without a network, source='made' makes the data set here"
        ) from error
