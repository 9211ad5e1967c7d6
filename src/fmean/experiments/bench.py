"""Time and memory of GenAgg beside PyG's aggregations and the authors' package, all in one run."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from .contenders import METHODS, Contender, WrongResultError, check, contender
from .measure import free_bytes, kernel_milliseconds, milliseconds, peak_mib
from .record import machine, versions, write_record
from .workloads import CASES, FEATURES, WORKLOADS, Case, Data, draw

__all__ = ["Bench", "Settings", "WrongResultError"]

# Of a plain path and the authors', which a CPU might not hold: bytes at the peak for each byte of the messages.
HEAVY = {"authors-genagg": 18, "fmean-sinh-plain": 30}
LARGE = 10_000_000  # edges; beyond it the plain path is compared on a graph of a twentieth
PATIENCE = 8_000.0  # milliseconds for one method in one case, then its further rounds are left out; quick: a 40th


@dataclass(frozen=True)
class Settings:
    """What to measure: on a CPU graphs of a tenth of the size, and quick ones of a twentieth of that."""

    device: str = "cuda" if torch.cuda.is_available() else "cpu"
    quick: bool = False
    workloads: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, but torch finds no CUDA device here")
        for what, given, known in (
            ("workload", self.workloads, WORKLOADS),
            ("method", self.methods, tuple(METHODS)),
        ):
            for name in given:
                if name not in known:
                    raise ValueError(f"unknown {what} {name!r}; known are {', '.join(known)}")
        if not self.cases():
            raise ValueError(f"there is nothing to measure of {', '.join(self.workloads)} on {self.device}")

    @property
    def out(self) -> Path:
        """Where the record goes by default: a quick one, which says little, not among the committed figures."""
        if self.quick:
            return Path("learned/bench_quick.json")
        return Path(f"results/bench_{'gpu' if self.device == 'cuda' else 'cpu'}.json")

    def cases(self) -> list[Case]:
        shrink = (10 if self.device == "cpu" else 1) * (20 if self.quick else 1)
        return [
            case.divided(shrink)
            for case in CASES
            if (not self.workloads or case.name in self.workloads)
            and not (case.cuda_only and self.device == "cpu")
            and self.methods_of(case)
        ]

    def methods_of(self, case: Case) -> list[str]:
        return [
            name
            for name in case.methods or METHODS
            if (not self.methods or name in self.methods) and not (name == "authors-genagg" and not find_spec("genagg"))
        ]


class Bench:
    """Measures case after case. Within one, the methods take turns over several rounds, so that whatever slows the
    machine down for a while slows all of them; the figure of each is its median. How far that lies above the fastest
    call, as a share of it, is its noise: other work on the same machine can make the figures worthless.

    Arguments:
        settings: What to measure.
        out: The record, written after every case; one that was not finished, of the same settings, versions and
            machine, is gone on with.
        command: What the record says made it.
    """

    def __init__(self, settings: Settings, out: Path, command: str = "fmean bench", fresh: bool = False) -> None:
        self.settings, self.out, self.command = settings, out, command
        self.device = torch.device(settings.device)
        self.rounds = 2 if settings.quick else 5
        self.notes: list[str] = []
        if not find_spec("genagg") and (not settings.methods or "authors-genagg" in settings.methods):
            self.notes.append("authors-genagg is left out: pip install 'fmean[bench]'")
        self.rows: list[dict[str, Any]] = [] if fresh else self._rows_of_unfinished()
        measured = {(row["workload"], row["level"]) for row in self.rows}
        self.cases = [case for case in settings.cases() if (case.workload, case.level) not in measured]
        self.steps = sum(len(settings.methods_of(case)) for case in self.cases) * (1 + self.rounds)

    def run(self) -> Iterator[str]:
        """Does the next of `steps` steps after each value, which says what that step is."""
        for message in ("The usage of `scatter", "Attempting to run cuBLAS"):  # PyG and torch on a GPU; no fault here
            warnings.filterwarnings("ignore", message)
        for i, case in enumerate(self.cases):
            self.rows += yield from self._measure(case)
            self._write(finished=i == len(self.cases) - 1)

    def _measure(self, case: Case) -> Generator[str, None, list[dict[str, Any]]]:
        data = draw(case, self.device)
        rows: list[dict[str, Any]] = []
        ready: list[tuple[Contender, dict[str, Any]]] = []
        for method in self.settings.methods_of(case):
            yield f"{case.workload}, {case.level}: {method}"
            row: dict[str, Any] = {"workload": case.workload, "level": case.level, "method": method}
            row |= dict.fromkeys(("forward_ms", "forward_backward_ms", "peak_mib"))
            row |= {"nodes": case.nodes, "edges": data.index.size(-1), "features": FEATURES, "layers": case.layers}
            rows.append(row)
            try:
                one = self._prepared(method, case, data)
                row["peak_mib"] = round(peak_mib(one.forward_backward, self.device), 3)
                if self.device.type == "cuda":
                    row |= self._kernel_times(one)
                ready.append((one, row))
            except (torch.OutOfMemoryError, MemoryError):
                row["note"] = "not enough memory"
            except ModuleNotFoundError as error:
                row["note"] = f"no module {error.name}"
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        for _ in range(self.rounds):
            for method in self.settings.methods_of(case):
                yield f"{case.workload}, {case.level}: {method}"
                for one, _row in ready:
                    if one.method == method:
                        self._time(one)
        for one, row in ready:
            for kind, found in (("ms", one.times), ("host_ms", one.host)):
                row |= {f"{what}_{kind}": round(median(all_) / case.layers, 4) for what, all_ in found.items() if all_}
            row["noise"] = round(max(median(times) / min(times) for times in one.times.values()) - 1, 3)
        return rows

    def _prepared(self, method: str, case: Case, data: Data) -> Contender:
        """A method that was checked and has warmed up: kernels compiled, the index sorted where that is remembered."""
        one = contender(method, case, data)
        need = HEAVY.get(method, 0) * data.index.size(-1) * FEATURES * data.x.element_size()
        if self.device.type == "cpu" and need > free_bytes(self.device):
            raise MemoryError
        if method.startswith("fmean-") and not method.endswith("-plain"):
            small = case.divided(20) if case.edges > LARGE else case
            check(one if small is case else replace(one, case=small, data=draw(small, self.device)))
        began = time.monotonic()
        for _ in range(2 if self.settings.quick else 3):
            one.forward()
            one.forward_backward()
            if time.monotonic() - began > 1:
                break  # slow as it is, it is warm
        return one

    def _kernel_times(self, one: Contender) -> dict[str, float]:
        found = {}
        for what in one.times:
            run = getattr(one, what)
            repetitions = max(2, min(10, int(200 / milliseconds(run, 1, self.device)[0])))
            found[f"{what}_kernel_ms"] = round(kernel_milliseconds(run, repetitions) / one.case.layers, 4)
        return found

    def _time(self, one: Contender) -> None:
        """Calls for about half a second (on a GPU 50 ms, quick 20 ms), at most 20. The first of several is left out:
        it finds caches and allocator as another method left them."""
        if sum(map(sum, one.times.values())) > PATIENCE / (40 if self.settings.quick else 1):
            return
        budget = 20.0 if self.settings.quick else 50.0 if self.device.type == "cuda" else 500.0
        for what, times in one.times.items():
            run = getattr(one, what)
            host: list[float] = []
            taken = milliseconds(run, 1, self.device, host)
            calls = min(20, int(budget / min(times + taken)))  # by the best so far: a stall must not leave one call
            if calls:
                host.clear()
                taken = milliseconds(run, calls, self.device, host)
            times += taken
            one.host[what] += host

    def _write(self, finished: bool) -> None:
        more = {"settings": asdict(self.settings), "threads": torch.get_num_threads(), "finished": finished}
        write_record(self.out, self.command, self.rows, **more)

    def _rows_of_unfinished(self) -> list[dict[str, Any]]:
        try:
            record = json.loads(self.out.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        now = {"settings": json.loads(json.dumps(asdict(self.settings))), "versions": versions(), "machine": machine()}
        going_on = record.get("finished") is False and all(record.get(key) == now[key] for key in now)
        return list(record["rows"]) if going_on else []
