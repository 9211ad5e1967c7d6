"""The results store: every run is one row of an SQLite file that several processes write at once."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from platform import node
from typing import Any

from .runs import Job, Run

__all__ = ["LEASE", "LostRunError", "OtherSettingsError", "Progress", "Store", "owner"]

LEASE = 60.0
"""Seconds after which a run is free again if nobody has said that it is being worked at."""

ATTEMPTS = 5
"""So many times a run's process may die before the run counts as failed."""

PATIENCE = 60.0
"""Seconds to wait for others who write."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    name TEXT PRIMARY KEY,
    dataset TEXT NOT NULL, protocol TEXT NOT NULL, aggregator TEXT NOT NULL, seed INTEGER NOT NULL, share REAL NOT NULL,
    settings TEXT NOT NULL,
    epochs INTEGER NOT NULL,
    done REAL NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'finished', 'failed')),
    owner TEXT, beat REAL, attempts INTEGER NOT NULL DEFAULT 0,
    row TEXT, error TEXT
)
"""


class OtherSettingsError(ValueError):
    """A run that is there with other settings than those asked for."""


class LostRunError(RuntimeError):
    """A run that another process has taken over, since nothing was heard of this one for too long."""


@dataclass(frozen=True)
class Progress:
    """How far some runs are."""

    runs: int
    finished: int
    failed: int
    epochs: float
    epochs_done: float

    @property
    def over(self) -> bool:
        return self.finished + self.failed == self.runs


def owner() -> str:
    """This process: its machine, number and, since numbers come back, when it began."""
    return f"{node()}:{os.getpid()}:{_began(os.getpid())}"


def _began(pid: int) -> str:
    """In the system's own units; empty where it does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _is_dead(name: str) -> bool:
    """Whether a process has surely ended: it was of this machine, and is not there any more."""
    machine, pid, began = name.rsplit(":", 2)
    return machine == node() and bool(began) and Path("/proc/self/stat").exists() and _began(int(pid)) != began


def _is_locked(error: sqlite3.Error) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


class Store:
    """Runs by name. Every call is a transaction of its own, so a process may be killed at any moment.

    Arguments:
        path: The file; it is made if it is not there. It has to lie on a disk of this machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._prepare()
                return
            except sqlite3.DatabaseError as error:
                if not _is_locked(error):
                    raise ValueError(f"{path} is not a store of runs, or is damaged ({error}); move it away") from None
                if time.monotonic() > end:
                    raise ValueError(f"{path} is locked by another process ({error}); try again") from None
            time.sleep(0.05)

    def _prepare(self) -> None:
        with self._open() as db:
            # Readers do not wait for the one who writes. It stays so; to set it SQLite wants the file for itself alone,
            # and does not wait for that.
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                db.execute("PRAGMA journal_mode = WAL")
            db.execute(SCHEMA)
            db.execute("SELECT name, state, row FROM runs LIMIT 1")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        db.row_factory = sqlite3.Row
        try:
            yield db
        finally:
            db.close()

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """From here on nobody else writes: what is read stays so until it is changed."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def plan(self, jobs: Iterable[Job], rows: Iterable[dict[str, Any]] = ()) -> None:
        """Takes in the jobs that are not there yet. Of those that are, what failed or is to have more epochs goes on.

        `rows` are results from elsewhere, such as a record: a job that is among them need not be done again.
        """
        known = {Run.of(row).name: row for row in rows}
        with self._write() as db:
            for job in jobs:
                run, settings = job.run, json.dumps(job.identity, sort_keys=True)
                there = db.execute("SELECT * FROM runs WHERE name = ?", (run.name,)).fetchone()
                if there is None:
                    db.execute(
                        "INSERT INTO runs (name, dataset, protocol, aggregator, seed, share, settings, epochs) "
                        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (
                            run.name,
                            run.dataset,
                            run.protocol,
                            run.aggregator,
                            run.seed,
                            run.share,
                            settings,
                            job.epochs,
                        ),
                    )
                    row = known.get(run.name)
                    if row is not None and row["settings"] == job.identity and row["epochs"] >= job.epochs:
                        _finish(db, run.name, row)
                    elif row is not None and row["settings"] != job.identity:
                        raise OtherSettingsError(_differs(run.name, row["settings"], job.identity))
                elif json.loads(there["settings"]) != job.identity:
                    raise OtherSettingsError(_differs(run.name, json.loads(there["settings"]), job.identity))
                elif there["state"] == "failed" or (there["state"] == "finished" and there["epochs"] < job.epochs):
                    db.execute(
                        "UPDATE runs SET state = 'waiting', owner = NULL, error = NULL, attempts = 0, epochs = ? "
                        "WHERE name = ?",
                        (max(job.epochs, there["epochs"]), run.name),
                    )

    def forget(self, names: Iterable[str]) -> None:
        """Takes runs out; whoever is at one of them loses it."""
        with self._write() as db:
            db.executemany("DELETE FROM runs WHERE name = ?", [(name,) for name in names])

    def claim(self, names: Iterable[str], me: str) -> str | None:
        """The first of these runs that nobody is at, from now on `me`'s; None, if there is none.

        That is one that waits, or one whose process has died or has said nothing for `LEASE` seconds.
        """
        with self._write() as db:
            now = time.time()
            open_ = {one["name"]: one for one in db.execute("SELECT * FROM runs WHERE state IN ('waiting', 'running')")}
            for name in names:
                one = open_.get(name)
                if one is None:
                    continue
                if one["state"] == "running" and not (one["beat"] < now - LEASE or _is_dead(one["owner"])):
                    continue
                if one["attempts"] >= ATTEMPTS:
                    error = f"its process died {ATTEMPTS} times, perhaps for want of memory"
                    db.execute("UPDATE runs SET state = 'failed', error = ? WHERE name = ?", (error, name))
                    continue
                db.execute(
                    "UPDATE runs SET state = 'running', owner = ?, beat = ?, attempts = attempts + 1 WHERE name = ?",
                    (me, now, name),
                )
                return name
        return None

    def beat(self, name: str, me: str, done: float) -> None:
        """Says that a run is being worked at, and how many epochs are done."""
        with self._write() as db:
            self._mine(db, name, me)
            db.execute("UPDATE runs SET beat = ?, done = ? WHERE name = ?", (time.time(), done, name))

    def finish(self, name: str, me: str, row: dict[str, Any]) -> None:
        with self._write() as db:
            self._mine(db, name, me)
            _finish(db, name, row)

    def fail(self, name: str, me: str, error: str) -> None:
        with self._write() as db:
            self._mine(db, name, me)
            db.execute("UPDATE runs SET state = 'failed', owner = NULL, error = ? WHERE name = ?", (error, name))

    def release(self, me: str) -> None:
        """Gives back what `me` has not finished: it was stopped, and did not die."""
        with self._write() as db:
            db.execute(
                "UPDATE runs SET state = 'waiting', owner = NULL, attempts = attempts - 1 "
                "WHERE state = 'running' AND owner = ?",
                (me,),
            )

    def _mine(self, db: sqlite3.Connection, name: str, me: str) -> None:
        one = db.execute("SELECT owner, state FROM runs WHERE name = ?", (name,)).fetchone()
        if one is None or one["state"] != "running" or one["owner"] != me:
            raise LostRunError(f"{name} has been taken over by another process")

    def rows(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """What has been finished, of these runs or of all."""
        with self._open() as db:
            found = {one["name"]: one["row"] for one in db.execute("SELECT name, row FROM runs WHERE row IS NOT NULL")}
        return [json.loads(found[name]) for name in (found if names is None else names) if name in found]

    def progress(self, names: Iterable[str]) -> Progress:
        """A run that is not there has not begun: another command has forgotten it, and plans it anew."""
        names = list(names)
        with self._open() as db:
            found = {one["name"]: one for one in db.execute("SELECT name, state, epochs, done FROM runs")}
        ours = [found[name] for name in names if name in found]
        states = [one["state"] for one in ours]
        over = [one["state"] in ("finished", "failed") for one in ours]
        done = sum(
            one["epochs"] if end else min(one["done"], one["epochs"]) for one, end in zip(ours, over, strict=True)
        )
        return Progress(
            len(names), states.count("finished"), states.count("failed"), sum(one["epochs"] for one in ours), done
        )

    def unfinished(self, names: Iterable[str]) -> list[str]:
        """Those of these runs that are still to be done."""
        with self._open() as db:
            found = {one["name"] for one in db.execute("SELECT name FROM runs WHERE state = 'finished'")}
        return [name for name in names if name not in found]

    def failures(self, names: Iterable[str]) -> dict[str, str]:
        with self._open() as db:
            found = {one["name"]: one["error"] for one in db.execute("SELECT * FROM runs WHERE state = 'failed'")}
        return {name: found[name] for name in names if name in found}


def _finish(db: sqlite3.Connection, name: str, row: dict[str, Any]) -> None:
    db.execute(
        "UPDATE runs SET state = 'finished', owner = NULL, done = ?, epochs = ?, row = ? WHERE name = ?",
        (row["epochs"], row["epochs"], json.dumps(row), name),
    )


def _differs(name: str, theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    keys = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
    words = ", ".join(f"{key} {theirs.get(key)} and not {ours.get(key)}" for key in keys)
    return f"{name} is there with other settings ({words}); name another --folder and --out, or say --fresh"
