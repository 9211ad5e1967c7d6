"""Runs shared out among processes of this machine; several of them may use one GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...checkpoint import save_atomically
from .runs import Job
from .store import LostRunError, Progress, Store, owner

__all__ = ["Place", "Result", "StoppedError", "WorkersDieError", "here", "locally", "perform", "stop", "stoppable"]

BEAT = 5.0  # seconds
PAUSE = 2e-4  # seconds, when all networks of a process wait for the GPU
DEATHS = 20  # of processes, for each worker, before there is no hope


class WorkersDieError(RuntimeError):
    """Processes end before they have done anything."""


class StoppedError(Exception):
    """This process was asked to stop, between two steps of a run."""


_stopping = threading.Event()


@dataclass(frozen=True)
class Place:
    """Where runs are done: the folder of store, checkpoints and models, and the device."""

    folder: Path
    device: str = "cpu"
    compile: bool = False
    devices: int = 1
    """With more than one, each run is spread over so many."""
    lanes: int = 1
    """Runs at a time in one process: on a GPU, where each has a stream of its own."""
    save_every: float = 30.0
    """Seconds between two checkpoints of a run."""

    @property
    def store(self) -> Path:
        return self.folder / "runs.sqlite"

    def checkpoint(self, name: str) -> Path:
        return self.folder / "checkpoints" / f"{name}.pt"

    def model(self, name: str) -> Path:
        return self.folder / "models" / f"{name}.pt"


Result = tuple[dict[str, Any], dict[str, Any]]


Tick = Callable[[float], None]
Outcome = TypeVar("Outcome")


def _silent(done: float) -> None:
    pass


def perform(job: Job, place: Place, tick: Tick = _silent) -> Result:
    """Does a run, or what is left of it: the row and the network. `tick` is told how many epochs are done.

    Spread over several devices, it is done in processes of their own, from which nothing is heard before the end.
    """
    return _to_its_end(_performing(job, place, tick))


def _to_its_end(work: Generator[bool, None, Outcome]) -> Outcome:
    found: list[Outcome] = []

    def all_of_it() -> Iterator[bool]:
        found.append((yield from work))

    for going_on in all_of_it():
        if not going_on:
            time.sleep(PAUSE)
    return found[0]


def _performing(job: Job, place: Place, tick: Tick) -> Generator[bool, None, Result]:
    """`perform`, piece by piece: True where it got on, False where it waits for a GPU."""
    from .training import new_fabric

    fabric = new_fabric(place.device, job.settings.precision, place.devices)
    if place.devices == 1:
        result = yield from _train(fabric, job, place, tick)
        assert result is not None
        return result
    # Bound beforehand: as arguments, Fabric would look into the job, which is frozen.
    row, content = fabric.launch(partial(_spread, job=job, place=place))
    return row, torch.load(BytesIO(content), weights_only=True)


def _spread(fabric: Any, job: Job, place: Place) -> tuple[dict[str, Any], bytes] | None:
    """As bytes, since tensors that a process hands over are gone when it ends."""
    result = _to_its_end(_train(fabric, job, place))
    if result is None:
        return None
    content = BytesIO()
    torch.save(result[1], content)
    return result[0], content.getvalue()


def _train(fabric: Any, job: Job, place: Place, tick: Tick = _silent) -> Generator[bool, None, Result | None]:
    from .training import Trainer

    trainer = Trainer(job, place.checkpoint(job.run.name), place.device, place.compile, fabric, place.save_every)
    done = trainer.progress
    try:
        for now in trainer.run():
            done = done if now is None else now
            tick(done)
            yield now is not None
    except StoppedError:
        trainer.save()
        raise
    if not fabric.is_global_zero:
        return None
    # What the layers have learned takes seconds to find out, in which the other networks are to go on.
    with ThreadPoolExecutor(1) as beside:
        result = beside.submit(lambda: (trainer.row(), trainer.content()))
        while not result.done():
            yield False
        return result.result()


@contextmanager
def _heartbeat(store: Store, name: str, me: str) -> Iterator[Tick]:
    """A thread that says every few seconds that the run is worked at; what is yielded tells it how far."""
    state: dict[str, Any] = {"done": 0.0, "lost": None}
    over = threading.Event()

    def beat() -> None:
        try:
            while not over.wait(BEAT):
                with suppress(sqlite3.OperationalError):  # locked for long: a lease is as long as many beats
                    store.beat(name, me, state["done"])
        except LostRunError as error:
            state["lost"] = error

    def tick(done: float) -> None:
        state["done"] = done
        if _stopping.is_set():
            raise StoppedError
        if state["lost"] is not None:
            raise state["lost"]

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield tick
    finally:
        over.set()
        thread.join()


def here(jobs: list[Job], place: Place) -> None:
    """Does all runs that nobody else is at, in this process. Returns when all are finished, whoever did them."""
    store, me = Store(place.store), owner()
    by_name = {job.run.name: job for job in jobs}
    lanes: list[Iterator[bool]] = []
    asked = -1.0
    try:
        while lanes or not (_stopping.is_set() or store.progress(by_name).over):
            if len(lanes) < place.lanes and not _stopping.is_set() and time.monotonic() > asked + 0.5:
                name = store.claim(by_name, me)
                if name is not None:
                    lanes.append(_one(by_name[name], place, store, me))
                else:
                    asked = time.monotonic()  # others are at the last ones: should they die, this process is there
            if not lanes:
                time.sleep(0.5)
                continue
            going_on = [next(lane, None) for lane in lanes]  # each in turn
            lanes = [lane for lane, now in zip(lanes, going_on, strict=True) if now is not None]
            if going_on and not any(going_on):
                time.sleep(PAUSE)
    finally:
        store.release(me)


def stop() -> None:
    """Has `here` save what it is at, and return."""
    _stopping.set()


def _one(job: Job, place: Place, store: Store, me: str) -> Iterator[bool]:
    name = job.run.name
    try:
        with _heartbeat(store, name, me) as tick:
            row, content = yield from _performing(job, place, tick)
        save_atomically(content, place.model(name))
        store.finish(name, me, row)
    except (LostRunError, StoppedError):
        pass  # another one goes on from the last checkpoint
    except Exception as error:
        # One run that fails, for want of memory perhaps, does not keep the others from being done.
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = (str(error).strip().splitlines() or [""])[-1]  # the last line of a traceback from another process
        store.fail(name, me, f"{type(error).__name__}: {what} ({Path(where.filename).name}:{where.lineno})")


def locally(jobs: list[Job], place: Place, workers: int) -> Iterator[Progress]:
    """Does all runs in so many processes; now and then, how far they are. One that dies is replaced."""
    store = Store(place.store)
    names = [job.run.name for job in jobs]
    left = store.progress(names)
    workers = min(workers, -(-(left.runs - left.finished - left.failed) // place.lanes))
    threads = max(1, torch.get_num_threads() // max(1, workers))
    context = multiprocessing.get_context("spawn")

    def start() -> Any:
        process = context.Process(target=_worker, args=(jobs, place, threads, os.getpid()))
        process.start()
        return process

    processes, deaths = [start() for _ in range(workers)], 0
    try:
        while not (progress := store.progress(names)).over:
            yield progress
            time.sleep(0.5)
            for i, process in enumerate(processes):
                if not process.is_alive() and process.exitcode != 0:
                    deaths += 1
                    if deaths > DEATHS * workers:
                        raise WorkersDieError(f"processes die again and again (exit code {process.exitcode})")
                    processes[i] = start()
        yield progress
        for process in processes:
            process.join(30)
    finally:
        for process in processes:
            process.terminate()  # it saves what it is at, and gives it back
        for process in processes:
            process.join(10)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM, by which batch systems stop a command, counts as Ctrl-C: its workers save what they are at."""

    def stop(*_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not keep them from it
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _worker(jobs: list[Job], place: Place, threads: int, parent: int) -> None:
    # Ctrl-C reaches all processes of a terminal; the parent says what is to happen.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: stop())
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams that each have something to do
    here(jobs, place)


def _end_with_parent(parent: int) -> None:
    """Nobody wants the results of a parent that was killed before those that the next one asks for."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
