"""`python -m fmean.experiments.benchmark`: the command `fmean reproduce benchmark` with plain output."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from .driver import Benchmark, Options, from_words
from .output import markdown
from .scheduler import WorkersDieError, stoppable
from .words import OPTIONS


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m fmean.experiments.benchmark", description=__doc__)
    for name, (kind, text) in OPTIONS.items():
        about = text.replace("%", "%%")  # argparse would put something in its place
        flag = f"--{name.replace('_', '-')}"
        if kind is bool:
            parser.add_argument(flag, action="store_true", help=about)
        elif isinstance(kind, list):
            parser.add_argument(flag, action="append", type=kind[0], help=f"{about} May be repeated.", metavar="NAME")
        else:
            parser.add_argument(flag, type=kind, help=about, metavar=kind.__name__.upper())
    given: dict[str, Any] = vars(parser.parse_args(words))
    command = " ".join(["python -m fmean.experiments.benchmark", *(sys.argv[1:] if words is None else words)])
    try:
        options: Options = from_words(**given)
        benchmark = Benchmark(options, command)
    except ValueError as error:
        parser.error(str(error))
    try:
        with stoppable():
            _train(benchmark)
    except KeyboardInterrupt:
        print("\nStopped; the same command goes on from here.")
        return 130
    except WorkersDieError as error:
        print(f"{error}; the same command goes on.", file=sys.stderr)
        return 1
    _show(benchmark, options.out)
    for name, why in benchmark.failures.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    return 1 if benchmark.failures else 0


def _train(benchmark: Benchmark) -> None:
    said, began = "", time.monotonic()
    for progress in benchmark.run():
        now = f"{progress.finished} of {progress.runs} runs, {progress.epochs_done:.1f} of {progress.epochs} epochs"
        if now != said:
            print(f"{time.monotonic() - began:7.0f} s   {now}", flush=True)
            said = now


def _show(benchmark: Benchmark, out: Path) -> None:
    from .plots import draw_training

    record = benchmark.record()
    if record is None:
        return
    out.with_suffix(".md").write_text(markdown(record), encoding="utf-8")
    print(markdown({"rows": benchmark.asked(record)}))
    try:
        draw_training(record, out)
    except ModuleNotFoundError as error:
        print(f"No plots without {error.name}: pip install 'fmean[cli]'")
    print(f"Record: {out}   Tables: {out.with_suffix('.md')}   Models: {benchmark.place.folder / 'models'}")


if __name__ == "__main__":
    sys.exit(main())
