"""The benchmark as a whole: what is to be run, where it is kept, and the record of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ...checkpoint import set_aside
from ...data import remedy
from ..record import cores, versions, write_record
from .aggregators import AGGREGATORS, available
from .figures import made_on
from .output import order
from .protocols import DATASETS, PROTOCOLS, needed
from .runs import Job, Run, Settings, appendix, grid
from .scheduler import Place, locally
from .store import Progress, Store
from .words import OPTIONS

__all__ = ["QUICK", "Benchmark", "Options", "from_words"]

PAPER = DATASETS[:4]

ON_GPU = {"workers": 1, "lanes": 16}
"""Runs that share a GPU, on streams of one process: several processes would take turns on it, a slice of time each."""

# A few minutes on a laptop's CPU.
QUICK: dict[str, Any] = {
    "dataset": ["pattern", "cluster"],
    "aggregator": ["genagg-sinh", "mean", "sum"],
    "share": [0.1],
    "seeds": 2,
    "epochs": 5,
    "batch_size": 8,
    "out": Path("reproduced/benchmark_quick.json"),
    "folder": Path("reproduced/benchmark_quick"),
}


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    datasets: tuple[str, ...] = PAPER
    protocols: tuple[str, ...] = ("paper",)
    aggregators: tuple[str, ...] = field(default_factory=available)
    seeds: int = 3
    shares: tuple[float, ...] = (1.0,)
    appendix: bool = False
    settings: Settings = field(default_factory=Settings)
    device: str = "cpu"
    devices: int = 1
    compile: bool = False
    workers: int = 1
    lanes: int = 1
    save_every: float = 30.0
    ray: bool = False
    ray_address: str | None = None
    out: Path = Path("results/benchmark.json")
    folder: Path = Path("reproduced/benchmark")
    fresh: bool = False

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("workers", 1), ("lanes", 1), ("devices", 1), ("save_every", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} must be {least} or more, got {getattr(self, name)}")
        if self.ray_address is not None:
            object.__setattr__(self, "ray", True)
        if not self.device.startswith("cuda") and self.device != "cpu":
            raise ValueError(f"device must be cpu, cuda or cuda:NUMBER, got {self.device!r}")
        if self.device.startswith("cuda") and not torch.cuda.is_available() and not self.ray_address:
            raise ValueError(f"device is {self.device}, but torch finds no CUDA device here")
        missing = [name for name in self.aggregators if name in AGGREGATORS and name not in available()]
        if missing:
            package = AGGREGATORS[missing[0]].package
            raise ValueError(f"{missing[0]} needs the package {package}: pip install {package}")
        for package, extra in (("lightning_fabric", "train"), ("torchmetrics", "train"), ("ray", "ray")):
            if (package != "ray" or self.ray) and find_spec(package) is None:
                raise ValueError(f"the benchmark needs {package}: pip install 'fmean[{extra}]'")

    @property
    def runs(self) -> list[Run]:
        if self.appendix:
            return appendix(self.aggregators, self.seeds)
        return grid(self.datasets, self.protocols, self.aggregators, self.seeds, self.shares)


def from_words(quick: bool = False, **words: Any) -> Options:
    """The options as they were typed (see `words`); what was not is None, False or empty."""
    # 0 == False, but 0 was typed.
    given = {name: value for name, value in words.items() if not (value is None or value is False or value in ([], ()))}
    given = (QUICK | given) if quick else given
    unknown = set(given) - set(OPTIONS)
    if unknown:
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}")
    many = {"dataset": "datasets", "protocol": "protocols", "aggregator": "aggregators", "share": "shares"}
    chosen: dict[str, Any] = {many[name]: tuple(dict.fromkeys(given.pop(name))) for name in many if name in given}
    own = {one.name for one in fields(Settings)}
    chosen["settings"] = Settings(**{name: given.pop(name) for name in own if name in given})
    given.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = given["device"].startswith("cuda")
    given.setdefault("workers", ON_GPU["workers"] if on_gpu else cores())
    given.setdefault("lanes", ON_GPU["lanes"] if on_gpu and given.get("devices", 1) == 1 else 1)
    return Options(**chosen, **given)


class Benchmark:
    """All runs that were asked for, with those that are there already.

    Killed at any moment, the same command goes on: a finished run is not repeated, and one that is half-way goes on
    at its last checkpoint. Several commands may share a folder; they share out the work.

    Arguments:
        options: What to do.
        command: What was typed, for the record.
    """

    def __init__(self, options: Options, command: str = "") -> None:
        self.options, self.commands = options, [command]
        self.jobs = [Job.of(run, options.settings) for run in options.runs]
        folder = options.folder.resolve()
        self.place = Place(folder, options.device, options.compile, options.devices, options.lanes, options.save_every)
        if options.fresh:
            self._check_data(self.names)  # before anything is lost
            self._forget()
        self.recorded = self._recorded()
        self.store = Store(self.place.store)
        self.store.plan(self.jobs, self.recorded.values())
        self._check_data(self.store.unfinished(self.names))
        self.written = -1

    @property
    def names(self) -> list[str]:
        return [job.run.name for job in self.jobs]

    @property
    def progress(self) -> Progress:
        return self.store.progress(self.names)

    @property
    def failures(self) -> dict[str, str]:
        return self.store.failures(self.names)

    def run(self) -> Iterator[Progress]:
        """Does what is left; now and then, how far it is. The record is written with each run that is finished."""
        options = self.options
        try:
            if options.ray:
                from .cluster import over_ray

                work = over_ray(self.jobs, self.place, options.workers, options.ray_address)
            else:
                work = locally(self.jobs, self.place, options.workers)
            for progress in work:
                if progress.finished != self.written:
                    self.write()
                    self.written = progress.finished
                yield progress
        finally:
            self.write()

    def write(self) -> None:
        """The record: all that the store knows, and what an earlier record had beside that."""
        rows = {Run.of(row).name: row for row in self.store.rows()}
        rows = self.recorded | rows
        if rows:
            command = "; ".join(dict.fromkeys(one for one in self.commands if one))
            protocols = {name: protocol.about for name, protocol in PROTOCOLS.items()}
            in_order = sorted(rows.values(), key=order)
            more: dict[str, Any] = {"versions": versions() | _training_versions(), "protocols": protocols}
            more["machine"] = "; ".join(made_on(in_order))
            write_record(self.options.out, command, in_order, **more)

    def record(self) -> dict[str, Any] | None:
        """The record as it was last written; None, if nothing has been finished yet."""
        out = self.options.out
        return json.loads(out.read_text(encoding="utf-8")) if out.exists() else None

    def asked(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Of the rows of a record those of the runs that this command was asked for."""
        names = set(self.names)
        return [row for row in record["rows"] if Run.of(row).name in names]

    def _recorded(self) -> dict[str, dict[str, Any]]:
        """The rows of the record that is there, by name."""
        out = self.options.out
        if not out.exists():
            return {}
        try:
            record = json.loads(out.read_text(encoding="utf-8"))
            rows = {Run.of(row).name: row for row in record["rows"]}
            if any("settings" not in row or "epochs" not in row for row in rows.values()):
                raise ValueError("rows without settings")
            self.commands = [*record["command"].split("; "), *self.commands]
        except (ValueError, KeyError, TypeError) as error:
            set_aside(out, error)
            return {}
        again = self.names if self.options.fresh else ()
        return {name: row for name, row in rows.items() if name not in again}

    def _check_data(self, names: list[str]) -> None:
        """Says at once which data sets these runs lack, and not when their turn comes. A cluster has its own."""
        if self.options.ray_address is not None:
            return
        wanted = dict.fromkeys((job.run.dataset, job.run.protocol) for job in self.jobs if job.run.name in set(names))
        source = self.options.settings.source
        found = [remedy(dataset, needed(protocol), source=source) for dataset, protocol in wanted]
        commands = list(dict.fromkeys(command for command in found if command))
        if commands:
            lacking = ", ".join(dict.fromkeys(command.split()[3] for command in commands))
            raise ValueError(f"{lacking} must be made before anything can be trained: {' && '.join(commands)}")

    def _forget(self) -> None:
        """The runs that were asked for, and nothing else, begin anew."""
        store = Store(self.place.store)
        store.forget(self.names)
        for name in self.names:
            for path in (self.place.checkpoint(name), self.place.model(name)):
                path.unlink(missing_ok=True)


def _training_versions() -> dict[str, str]:
    """Of what training rests on beside torch."""
    names = ("lightning_fabric", "pytorch-lightning", "torchmetrics")
    return {each.metadata["Name"]: each.version for name in names for each in distributions(name=name)}
