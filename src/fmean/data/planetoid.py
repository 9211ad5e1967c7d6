"""Cora, CiteSeer and PubMed from their original files, through PyG."""

from __future__ import annotations

import contextlib
import io
import tempfile
from dataclasses import replace
from pathlib import Path

from . import checksums
from .graphs import GraphSet, from_data
from .places import Original, read

__all__ = ["CITATIONS", "citations", "files"]

# Our name and PyG's.
CITATIONS = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}


def files(name: str) -> list[Original]:
    """The original files of a graph."""
    known = CITATIONS[name]
    parts = checksums.PLANETOID[known].items()
    return [Original(((f"planetoid/{known}/raw/ind.{name}.{part}", "sha256", sha256),)) for part, sha256 in parts]


def citations(name: str, raw: str | Path | None = None) -> GraphSet:
    """One graph with masks for `"train"`, `"val"` and `"test"` nodes, of the original files in `raw`.

    PyG writes beside what it reads, so it is given copies, for as long as it needs them. The files are pickles: none is
    opened whose checksum is not the known one.
    """
    from torch_geometric.datasets import Planetoid

    known = CITATIONS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / known / "raw"
        folder.mkdir(parents=True)
        for original in files(name):
            (folder / Path(original.forms[0][0]).name).write_bytes(read(original, raw))
        with contextlib.redirect_stderr(io.StringIO()):  # PyG says that it is processing
            return of_planetoid(Planetoid(scratch, known), name)


def of_planetoid(dataset: object, name: str) -> GraphSet:
    """PyG's data set as ours."""
    data = dataset[0]  # type: ignore[index]
    graph = from_data([data], name, "node", dataset.num_classes)  # type: ignore[attr-defined]
    return replace(graph, masks={"train": data.train_mask, "val": data.val_mask, "test": data.test_mask})
