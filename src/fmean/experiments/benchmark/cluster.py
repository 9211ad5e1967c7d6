"""The same runs over a Ray cluster."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ...checkpoint import save_atomically
from .runs import Job
from .scheduler import Place, Result, perform
from .store import LostRunError, Progress, Store, owner

__all__ = ["RETRIES", "over_ray"]

RETRIES = 3
"""So many times Ray begins a run again whose process or machine died; it goes on at its last checkpoint."""


BOARD = "how far the runs of the benchmark are"
"""The name of the actor; each program that uses Ray has names of its own."""


def _board(ray: Any) -> Any:
    """Where runs say how far they are, and in which process."""

    class Board:  # made here, Ray sends it as it is: its process need not import torch
        def __init__(self) -> None:
            self.found: dict[str, tuple[float, int]] = {}

        def say(self, name: str, done: float, pid: int) -> None:
            self.found[name] = (done, pid)

        def read(self) -> dict[str, tuple[float, int]]:
            return self.found

    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Board).options(name=BOARD).remote()


def _do(job: Job, place: Place, board: Any) -> Result:
    said = 0.0

    def tick(done: float) -> None:
        nonlocal said
        if time.monotonic() - said > 1:
            said = time.monotonic()
            board.say.remote(job.run.name, done, os.getpid())

    return perform(job, place, tick)


def over_ray(jobs: list[Job], place: Place, workers: int, address: str | None = None) -> Iterator[Progress]:
    """Does all runs on a Ray cluster; now and then, how far they are.

    The store stays with this process, which hands out runs and takes in what comes back. Checkpoints are written
    where a run is done: if the folder is not one that all machines share, a run whose machine is lost begins anew.

    Arguments:
        jobs: What to do.
        place: Where.
        workers: On a GPU, how many runs share it; on CPUs each run has one of its own.
        address: Of the cluster. None: one that is made of this machine, with so many workers.
    """
    ray = _ray()
    mine = not ray.is_initialized()
    if mine:
        ray.init(
            address=address, include_dashboard=False, log_to_driver=False, **({} if address else {"num_cpus": workers})
        )
    on_gpu = place.device.startswith("cuda")
    need = {"num_cpus": 0.01, "num_gpus": place.devices / workers} if on_gpu else {"num_cpus": 1}
    do = ray.remote(max_retries=RETRIES, **need)(_do)
    board = _board(ray)
    store, me = Store(place.store), owner()
    by_name = {job.run.name: job for job in jobs}
    at_work: dict[Any, str] = {}
    try:
        while not (progress := store.progress(by_name)).over:
            while len(at_work) < _slots(ray, on_gpu, workers) and (name := store.claim(by_name, me)):
                at_work[do.remote(by_name[name], place, board)] = name
            for ready in ray.wait(list(at_work), timeout=0.5)[0] if at_work else ():
                _take(ray, store, me, place, at_work.pop(ready), ready)
            done = ray.get(board.read.remote())
            for task, name in list(at_work.items()):
                if not _beat(store, name, me, done.get(name, (0.0, 0))[0]):
                    ray.cancel(task, force=True)
                    del at_work[task]
            if not at_work:
                time.sleep(0.5)  # another command is at the rest
            yield progress
        yield progress
    finally:
        store.release(me)
        if mine:
            ray.shutdown()


def _beat(store: Store, name: str, me: str, done: float) -> bool:
    """Whether the run is still this command's; if not, another one is at it, from its last checkpoint."""
    try:
        with suppress(sqlite3.OperationalError):  # locked for long: a lease is as long as many beats
            store.beat(name, me, done)
    except LostRunError:
        return False
    return True


def _take(ray: Any, store: Store, me: str, place: Place, name: str, ready: Any) -> None:
    try:
        row, content = ray.get(ready)
    except ray.exceptions.RayError as error:  # what the run raised, or that its process died too often
        with suppress(LostRunError):
            store.fail(name, me, str(error).strip().splitlines()[-1])
    else:
        save_atomically(content, place.model(name))
        with suppress(LostRunError):  # the other command's result will be the same
            store.finish(name, me, row)


def _slots(ray: Any, on_gpu: bool, workers: int) -> int:
    """How many runs may be out at once: those the cluster has room for now, and a few that wait."""
    room = ray.cluster_resources()
    return int(room.get("GPU", 0) * workers if on_gpu else room.get("CPU", 1)) + 1


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise ModuleNotFoundError("--ray needs ray: pip install 'fmean[ray]'", name="ray") from None
    return ray
