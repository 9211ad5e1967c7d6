"""Time and memory of a call, on a CPU or a CUDA device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

__all__ = ["free_bytes", "kernel_milliseconds", "milliseconds", "peak_mib"]

Run = Callable[[], Any]

# Read when the first profile starts: without it every profile writes lines to the terminal.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def milliseconds(run: Run, repetitions: int, device: torch.device, host: list[float] | None = None) -> list[float]:
    """How long each call takes, as its caller sees it.

    On a GPU from the end of the work before it to the end of its own, so that what the host needs to launch it counts
    where the GPU has to wait for that. The work before, as in `triton.testing.do_bench`, is to fill a buffer (about
    0.1 ms), after which the L2 cache holds nothing of the call before. To `host` is added, of each call there, how
    long it kept its caller.
    """
    times = []
    for _ in range(repetitions):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize(device)
            _more_than_l2(device).zero_()
            start.record()
            begin = time.perf_counter()
            run()
            returned = time.perf_counter()
            end.record()
            torch.cuda.synchronize(device)
            times.append(start.elapsed_time(end))
            if host is not None:
                host.append((returned - begin) * 1e3)
        else:
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e3)
    return times


@cache
def _more_than_l2(device: torch.device) -> Tensor:
    return torch.empty(2**28, dtype=torch.int8, device=device)


def kernel_milliseconds(run: Run, repetitions: int) -> float:
    """The time of the GPU alone, mean of the repetitions, without what the host takes to launch its work."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as record:
        for _ in range(repetitions):
            run()
        torch.cuda.synchronize()
    return float(sum(event.device_time_total for event in record.key_averages())) / (1e3 * repetitions)


def peak_mib(run: Run, device: torch.device) -> float:
    """The most memory that tensors hold at once during a call, its result included, above what they held before.

    On a GPU by the counters of torch's allocator. A CPU has none, but its profiler reports every allocation (bytes > 0)
    and release (bytes < 0) of torch's CPU allocator in the order of time: the peak is the highest partial sum.
    What other libraries allocate is not in it, nor what was there before and is released.

    >>> round(peak_mib(lambda: (torch.zeros(2**18) + 1) * 2, torch.device("cpu")), 3)  # never three tensors at once
    2.0
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 2**20
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        result = run()
    del result
    results: Any = record.profiler and record.profiler.kineto_results
    changes = [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        peak = max(peak, held)
    return peak / 2**20


def free_bytes(device: torch.device) -> float:
    """Memory that is free now; infinite, if the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")
