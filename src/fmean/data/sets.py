"""Every data set by its name: loading, making beforehand, looking at what is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .graphs import GraphSet
from .images import IMAGES
from .parts import build_superpixels
from .places import DamagedError, MissingError, cache, is_there
from .planetoid import CITATIONS, citations, files
from .published import published
from .sbm import cluster, pattern
from .store import read, write

__all__ = ["NAMES", "SPLITS", "State", "build", "load", "remedy", "states"]

SPLITS = ("train", "val", "test")
RANDOM: dict[str, Callable[[str], GraphSet]] = {"pattern": pattern, "cluster": cluster}
NAMES = (*RANDOM, *IMAGES, *CITATIONS)


def load(
    name: str,
    split: str = "train",
    root: str | Path | None = None,
    raw: str | Path | None = None,
    source: str = "made",
) -> GraphSet:
    """A data set, or one split of it.

    What `fmean data build` has made is read. Else `pattern` and `cluster` are drawn and `cora`, `citeseer` and `pubmed`
    read from their original files, which takes seconds; `mnist` and `cifar10` must have been built.

    Arguments:
        name: One of `NAMES`.
        split: `"train"`, `"val"` or `"test"`. The citation graphs have masks instead, and are the same for each.
        root: Folder of what is made. (default: the environment's FMEAN_CACHE, or data)
        raw: Folder of the original files. (default: the environment's FMEAN_DATA, or ../shared/data)
        source: `"made"`, or `"published"` for the authors' graphs, downloaded by PyG.

    >>> load("cluster", "val", root="nowhere")
    GraphSet('cluster', graphs=1000, nodes=..., edges=..., features=7, classes=6, task='node')
    """
    _check(name, source)
    if split not in SPLITS:
        raise ValueError(f"split is one of {', '.join(SPLITS)}, not {split!r}")
    path = _path(name, split, root, source)
    if (name in IMAGES and source == "made") or path.exists():
        return read(path, f"make it with: {_command(name, root, source)}")
    graphs = _make(name, split, cache(root), raw, source)
    if source == "published":
        write(graphs, path, "published")
    return graphs


def remedy(
    name: str,
    splits: Iterable[str] = SPLITS,
    root: str | Path | None = None,
    raw: str | Path | None = None,
    source: str = "made",
) -> str | None:
    """The command after which `load` will find these splits; None, if it finds all that it needs already.

    Only whether files are there is looked at, and not into them.

    >>> remedy("cifar10", root="nowhere")
    'fmean data build cifar10 --root nowhere'
    """
    _check(name, source)
    there = all(_path(name, split, root, source).exists() for split in splits)
    if not there and source == "made":
        there = name in RANDOM or (name in CITATIONS and all(is_there(one, raw) for one in files(name)))
    return None if there else _command(name, root, source)


def build(
    name: str,
    root: str | Path | None = None,
    raw: str | Path | None = None,
    source: str = "made",
    workers: int = 1,
    fresh: bool = False,
) -> Iterator[tuple[int, int]]:
    """Makes the files of a data set that are not there as a whole; yields how much of how much is done.

    Arguments:
        name, root, raw, source: As for `load`.
        workers: Processes to cut images in.
        fresh: Make it all anew.
    """
    _check(name, source)
    return _build(name, root, raw, source, workers, fresh)


def _build(
    name: str, root: str | Path | None, raw: str | Path | None, source: str, workers: int, fresh: bool
) -> Iterator[tuple[int, int]]:
    if fresh:
        shutil.rmtree(_path(name, "train", root, source).parent, ignore_errors=True)
    if name in IMAGES and source == "made":
        yield from build_superpixels(IMAGES[name], cache(root) / name, raw, workers)
        return
    left = [one for one in states(name, root, source) if one.state != "whole"]
    for done, one in enumerate(left):
        yield done, len(left)
        write(_make(name, one.split, cache(root), raw, source), one.path, source)
    yield len(left), len(left)


@dataclass
class State:
    """A file of a data set: `"whole"` with its graphs, `"damaged"` or `"not built"`."""

    split: str
    path: Path
    state: str
    graphs: GraphSet | None = None


def states(name: str, root: str | Path | None = None, source: str = "made") -> list[State]:
    """What there is of a data set; every file is read and verified."""
    _check(name, source)
    found = []
    for split in ("all",) if name in CITATIONS else SPLITS:
        path = _path(name, split, root, source)
        try:
            found.append(State(split, path, "whole", read(path, "")))
        except MissingError:
            found.append(State(split, path, "not built"))
        except DamagedError:
            found.append(State(split, path, "damaged"))
    return found


def _check(name: str, source: str) -> None:
    if name not in NAMES:
        raise ValueError(f"unknown data set {name!r}; known are {', '.join(NAMES)}")
    if source not in ("made", "published"):
        raise ValueError(f"source is made or published, not {source!r}")


def _path(name: str, split: str, root: str | Path | None, source: str) -> Path:
    folder = cache(root) / (name if source == "made" else f"{name}-published")
    return folder / ("all.pt" if name in CITATIONS else f"{split}.pt")


def _command(name: str, root: str | Path | None, source: str) -> str:
    options = (f" --root {root}" if root else "") + (f" --source {source}" if source != "made" else "")
    return f"fmean data build {name}{options}"


def _make(name: str, split: str, folder: Path, raw: str | Path | None, source: str) -> GraphSet:
    if source == "published":
        return published(name, split, folder / "downloaded")
    return RANDOM[name](split) if name in RANDOM else citations(name, raw)
