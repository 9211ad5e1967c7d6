"""Superpixel graphs of a whole image set, on several processes; goes on where it was stopped."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .graphs import GraphSet, starts
from .images import Images
from .places import DamagedError, MissingError
from .store import read, write
from .superpixels import graphs_of

__all__ = ["build_superpixels", "join"]

PART = 250  # images
SPLITS = ("val", "test", "train")


def join(sets: list[GraphSet]) -> GraphSet:
    """The graphs of several sets of the same kind, one set after the other."""
    pos = [one.pos for one in sets if one.pos is not None]
    return replace(
        sets[0],
        x=torch.cat([one.x for one in sets]),
        edge_index=torch.cat([one.edge_index.t() for one in sets]).t(),
        y=torch.cat([one.y for one in sets]),
        node_ptr=starts(torch.cat([one.node_ptr.diff() for one in sets])),
        edge_ptr=starts(torch.cat([one.edge_ptr.diff() for one in sets])),
        pos=torch.cat(pos) if pos else None,
    )


def build_superpixels(
    of: Images,
    folder: Path,
    raw: str | Path | None = None,
    workers: int = 1,
    part: int = PART,
) -> Iterator[tuple[int, int]]:
    """Makes train.pt, val.pt and test.pt of an image set in `folder`; yields how many of how many images are done.

    Splits that are there and whole are left as they are. The others are made in parts, each kept as a file once it is
    finished: killed at any moment, the same call finds them again.

    Arguments:
        of: The image set.
        folder: For the files.
        raw: Folder of the original files.
        workers: How many processes; 1 is this one.
        part: Images of a part.
    """
    made = _made()
    left = [split for split in SPLITS if not _whole(folder / f"{split}.pt")]
    if not left:
        return
    parts = folder / "parts"
    images = of.splits(raw, left)
    total = sum(len(labels) for _, labels in images.values())
    paths = {
        split: {first: parts / f"{split}-{first:05}-{part}.pt" for first in range(0, len(images[split][1]), part)}
        for split in left
    }
    tasks, done = [], 0
    for split in left:
        for first, path in paths[split].items():
            some = slice(first, first + part)
            if _whole(path, made):
                done += len(images[split][1][some])
            else:
                tasks.append((images[split][0][some], images[split][1][some], of, path, made))
    yield done, total
    for finished in _here(tasks) if workers == 1 else _beside(tasks, workers):
        done += finished
        yield done, total
    for split in left:
        whole = join([read(path, "run the same command again", made) for path in paths[split].values()])
        write(whole, parts / f"{split}.pt", made)
        os.replace(parts / f"{split}.pt", folder / f"{split}.pt")
    shutil.rmtree(parts)


def _made() -> str:
    return f"superpixels 1, scikit-image {version('scikit-image')}"


def _whole(path: Path, made: str | None = None) -> bool:
    try:
        read(path, "", made)
    except (MissingError, DamagedError):
        return False
    return True


def _here(tasks: list[Any]) -> Iterator[int]:
    for task in tasks:
        yield _make(*task)


def _beside(tasks: list[Any], workers: int) -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _begin) as pool:
        try:
            for task in as_completed([pool.submit(_make, *task) for task in tasks]):
                yield task.result()
        except BaseException:  # the user's Ctrl-C, or a process that died
            for process in list(pool._processes.values()):
                process.terminate()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that waits for work would wait for ever, were the one that hands it out killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _make(images: Any, labels: Any, of: Images, path: Path, made: str) -> int:
    write(graphs_of(images, labels, of), path, made)
    return len(labels)
