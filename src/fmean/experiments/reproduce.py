"""Runs an experiment of the paper, trial by trial, on several processes; goes on where it was stopped."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ..checkpoint import set_aside
from ..standard import STANDARD
from .record import write_record
from .regression import EXPERIMENTS, METHODS, USUAL, Learner, Settings, draw

__all__ = ["AlreadyRunningError", "Reproduction"]

SAVE_EVERY = 20.0  # seconds

Rows = list[dict[str, Any]]


class AlreadyRunningError(RuntimeError):
    pass


class Reproduction:
    """All methods and trials of an experiment.

    A method's trial that is finished is kept as a file of rows, and all of them make up the record. Killed at any
    moment, the same run finds them again, and those half-way at their last checkpoint.

    Arguments:
        settings: What to run.
        methods: Which of `METHODS`.
        out: The record (JSON).
        folder: Where the run keeps what is not finished.
        workers: How many processes; trials are dealt out to them.
        command: What was typed, for the record.
        fresh: Do not go on with what is there.
    """

    def __init__(
        self,
        settings: Settings,
        methods: tuple[str, ...],
        out: Path,
        folder: Path,
        workers: int,
        command: str = "",
        fresh: bool = False,
    ) -> None:
        unknown = [method for method in methods if method not in METHODS]
        if unknown:
            raise ValueError(f"unknown method {', '.join(unknown)}; known are {', '.join(METHODS)}")
        self.settings, self.methods, self.out, self.folder = settings, methods, out, folder
        self.workers, self.commands = max(1, min(workers, settings.trials)), [command]
        folder.mkdir(parents=True, exist_ok=True)
        self._lock()
        if fresh:
            for path in folder.iterdir():
                if path.name != "lock":
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.rows = {} if fresh else self._recorded()
        self._collect()

    def _lock(self) -> None:
        """Keeps other runs out of the folder, where the system can, as long as this one lives."""
        try:
            import fcntl
        except ModuleNotFoundError:
            return
        lock = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR)
        weakref.finalize(self, os.close, lock)  # the end of the process does the same
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise AlreadyRunningError(f"another run is at work in {self.folder}") from None

    @property
    def units(self) -> list[tuple[str, int]]:
        return [(method, trial) for trial in range(self.settings.trials) for method in self.methods]

    @property
    def total(self) -> int:
        """Steps in all, of all methods and trials, those of trying not counted."""
        return self.settings.steps * len(self.units)

    @property
    def finished(self) -> bool:
        return all(unit in self.rows for unit in self.units)

    def run(self) -> Iterator[int]:
        """Trains what is left; now and then, how many of `total` steps are done."""
        left = {t: [m for m in self.methods if (m, t) not in self.rows] for t in range(self.settings.trials)}
        left = {trial: methods for trial, methods in left.items() if methods}
        before = self.total - self.settings.steps * sum(map(len, left.values()))
        work = self._beside if self.workers > 1 else self._here
        for done in work(left):
            self._collect()
            yield before + done
        self._collect()
        yield self.total

    def _here(self, left: dict[int, list[str]]) -> Iterator[int]:
        """In this process, one trial after the other."""
        before = 0
        for trial, methods in left.items():
            said = time.monotonic()
            for done in _trial(self.settings, self.folder, trial, methods):
                if time.monotonic() - said > 0.5:
                    said = time.monotonic()
                    yield before + done
            before += self.settings.steps * len(methods)

    def _beside(self, left: dict[int, list[str]]) -> Iterator[int]:
        """In several processes at once, each with its share of the cores."""
        context = multiprocessing.get_context("spawn")
        steps = context.Array("q", self.settings.trials, lock=False)
        threads = max(1, torch.get_num_threads() // self.workers)
        with ProcessPoolExecutor(self.workers, context, _begin, (steps, os.getpid(), threads)) as pool:
            tasks = [
                pool.submit(_worker, self.settings, self.folder, trial, methods) for trial, methods in left.items()
            ]
            try:
                while not all(task.done() for task in tasks):
                    wait(tasks, timeout=0.5)
                    for task in tasks:
                        if task.done():
                            task.result()  # raises what went wrong there
                    yield sum(steps)
            except BaseException:  # the user's Ctrl-C, or a process that died
                for process in list(pool._processes.values()):
                    process.terminate()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _collect(self) -> None:
        """Takes in what has been finished, and writes the record."""
        new = False
        for unit in self.units:
            path = _finished(self.folder, *unit)
            if unit not in self.rows and path.exists():
                try:
                    content = json.loads(path.read_text(encoding="utf-8"))
                    if content["settings"] == self.settings.identity and len(content["rows"]) == len(STANDARD):
                        self.rows[unit], new = content["rows"], True
                except (ValueError, KeyError, TypeError) as error:
                    set_aside(path, error)
        if new:
            self.write()

    def write(self) -> None:
        """All that is known, also of methods and trials that this run was not asked for."""
        rows = [row for rows in self.rows.values() for row in rows]
        settings = replace(self.settings, trials=max(self.settings.trials, 1 + max(trial for _, trial in self.rows)))
        rows.sort(key=lambda row: (STANDARD.index(row["target"]), list(METHODS).index(row["method"]), row["trial"]))
        more = {
            "experiment": EXPERIMENTS[self.settings.experiment].title,
            "finished": {(method, t) for method in self._wanted for t in range(settings.trials)} <= set(self.rows),
            "settings": asdict(settings),
            "points": self.settings.points,
        }
        write_record(self.out, "; ".join(dict.fromkeys(self.commands)), rows, **more)

    @property
    def _wanted(self) -> tuple[str, ...]:
        """The usual methods; or, in a record of extra ones alone, these."""
        there = {method for method, _ in self.rows}
        return USUAL if there & set(USUAL) else tuple(there)

    def _recorded(self) -> dict[tuple[str, int], Rows]:
        """The rows of an earlier run with the same settings, by method and trial."""
        if not self.out.exists():
            return {}
        try:
            record = json.loads(self.out.read_text(encoding="utf-8"))
            settings = Settings(**record["settings"])
            found: dict[tuple[str, int], Rows] = {}
            for row in record["rows"]:
                if row["method"] not in METHODS or row["target"] not in STANDARD:
                    raise ValueError(f"unknown {row['method']} or {row['target']}")
                found.setdefault((row["method"], row["trial"]), []).append(row)
            earlier = record["command"].split("; ")
        except (ValueError, KeyError, TypeError) as error:
            set_aside(self.out, error)
            return {}
        if settings.identity != self.settings.identity:
            raise ValueError(f"{self.out} is of another run ({settings}); give --out another file, or say --fresh")
        self.commands = [*earlier, *self.commands]
        return {unit: rows for unit, rows in found.items() if len(rows) == len(STANDARD)}


def _finished(folder: Path, method: str, trial: int) -> Path:
    return folder / f"{method}-{trial}.json"


def _checkpoint(folder: Path, method: str, trial: int) -> Path:
    return folder / f"{method}-{trial}.pt"


# Of a process that trains: where it says how far it is, and for whom.
_steps: Any = None
_parent = 0


def _begin(steps: Any, parent: int, threads: int) -> None:
    global _steps, _parent
    _steps, _parent = steps, parent
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that waits for work would wait for ever. One that trains is given the time to save what it has."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        time.sleep(5)
        os._exit(1)


def _worker(settings: Settings, folder: Path, trial: int, methods: list[str]) -> None:
    for done in _trial(settings, folder, trial, methods, lambda: os.getppid() != _parent):
        _steps[trial] = done
    if os.getppid() != _parent:
        os._exit(1)  # before it is handed another trial


def _trial(
    settings: Settings,
    folder: Path,
    trial: int,
    methods: list[str],
    orphaned: Callable[[], bool] = lambda: False,
) -> Iterator[int]:
    """Trains some methods in a trial, side by side, so that the graphs of a step are drawn once for all of them.

    After each step, how many of all are done. If whoever wanted this was killed, it saves what it has, and ends.
    """
    learners = [Learner(settings, method, trial, _checkpoint(folder, method, trial)) for method in methods]
    saved, ended = time.monotonic(), False
    while learners and not ended:
        step = min(learner.step for learner in learners)  # after a stop, some may be behind
        if step < settings.steps:
            graphs, y = draw(settings, trial, step)
        for learner in [learner for learner in learners if learner.step == step]:
            if learner.done:
                _finish(learner, folder)
                learners.remove(learner)
            else:
                learner.update(graphs, y)
        ended = orphaned()
        if ended or time.monotonic() - saved > SAVE_EVERY:
            for learner in learners:
                learner.save()
            saved = time.monotonic()
        left = sum(settings.steps - max(0, learner.step) for learner in learners)
        yield settings.steps * len(methods) - left


def _finish(learner: Learner, folder: Path) -> None:
    """Writes the rows of a trial that is done, and then forgets its checkpoint."""
    path = _finished(folder, learner.name, learner.trial)
    part = path.with_suffix(f".part-{os.getpid()}")
    content = {"settings": learner.settings.identity, "rows": learner.rows()}
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)
    _checkpoint(folder, learner.name, learner.trial).unlink(missing_ok=True)
