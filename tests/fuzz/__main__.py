"""python -m tests.fuzz --cases 10000 --seed 0: random cases against a float64 loop. Exit code 1 where one fails."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context

from .cases import draw
from .check import PATHS, USUAL, Failure, check, prepare

CHUNK = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; each case has the next one")
    parser.add_argument("--only", type=int, metavar="SEED", help="one case again")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--paths", nargs="+", default=list(USUAL), choices=list(PATHS))
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core; on a GPU, four)")
    options = parser.parse_args()
    if "triton" in options.paths and os.environ.get("TRITON_INTERPRET") != "1":
        os.environ["TRITON_INTERPRET"] = "1"  # which has to be there before Triton is imported, as it is by now
        os.execv(sys.executable, [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]])
    if options.only is not None:
        print(draw(options.only))
        seeds, jobs = range(options.only, options.only + 1), 1
    else:
        seeds = range(options.seed, options.seed + options.cases)
        jobs = options.jobs or (4 if options.device == "cuda" else len(os.sched_getaffinity(0)))

    start, shown, kinds, failed = time.monotonic(), 0.0, Counter(), set()
    for done, (seed, failures) in enumerate(
        _checked(partial(check, device=options.device, paths=options.paths), seeds, jobs), 1
    ):
        for failure in failures:
            print(f"\r{failure}", flush=True)
            kinds[failure.kind] += 1
            failed.add(seed)
        now = time.monotonic()
        if now - shown > (1 if sys.stderr.isatty() else 30) or done == len(seeds):
            shown = now
            line = f"{done:,} of {len(seeds):,} cases on {options.device}, {len(failed)} failed, {now - start:.0f} s"
            print(f"\r{line}", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for kind, count in kinds.most_common():
        print(f"{count:6,}  {kind}")
    if failed:
        print(f"{len(failed)} of {len(seeds):,} cases failed; the lowest seeds: {sorted(failed)[:10]}")
    else:
        print(f"{len(seeds):,} cases, seeds {seeds[0]} to {seeds[-1]}, paths {', '.join(options.paths)}: all right")
    return bool(failed)


def _checked(check: Callable[[int], list[Failure]], seeds: range, jobs: int) -> Iterator[tuple[int, list[Failure]]]:
    """Each seed with the failures of its case, in order, from several processes; one that dies is a failure too."""
    if jobs == 1:
        prepare()
        yield from ((seed, check(seed)) for seed in seeds)
        return
    while seeds:
        done = 0
        with ProcessPoolExecutor(jobs, get_context("spawn"), prepare) as pool, suppress(BrokenProcessPool):
            for seed, failures in zip(seeds, pool.map(check, seeds, chunksize=CHUNK), strict=True):
                yield seed, failures
                done += 1
        seeds = seeds[done:]
        for seed in seeds[: (jobs + 1) * CHUNK]:  # a process died in one of these: each on its own
            seeds = seeds[1:]
            try:
                with ProcessPoolExecutor(1, get_context("spawn"), prepare) as pool:
                    yield seed, pool.submit(check, seed).result()
            except BrokenProcessPool:
                yield (
                    seed,
                    [Failure(seed, "some", "call", "the process died", "see python -X faulthandler", str(draw(seed)))],
                )
                break


if __name__ == "__main__":
    sys.exit(main())
