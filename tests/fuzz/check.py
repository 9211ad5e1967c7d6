"""A case, computed on every path and held against the truth."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fmean.kernels import call as calls
from fmean.kernels import operators, plain

from .cases import Case, draw
from .compute import Truth, comparable, held, run, spoilt_of, truth_of
from .noise import Rounded

__all__ = ["PATHS", "USUAL", "Failure", "check", "prepare"]


@contextmanager
def interpreted() -> Iterator[None]:
    """The kernels of a GPU, on a CPU: in Triton's interpreter, which is slow."""
    if not os.environ.get("TRITON_INTERPRET"):
        raise RuntimeError("TRITON_INTERPRET=1 must be in the environment before anything imports Triton")
    from fmean.kernels import triton_kernels

    there = {module: module.backend for module in (calls, operators)}
    try:
        for module in there:
            module.backend = lambda x: triton_kernels
        yield
    finally:
        for module, backend in there.items():
            module.backend = backend


# Every way the library may go, by name, as what has to be entered for it. A new path is one more entry.
PATHS = {"default": nullcontext, "plain": plain, "triton": interpreted}
USUAL = ("default", "plain")

# Relative errors allowed in a well-conditioned problem: of results, and of gradients.
RTOL = {torch.float32: (1e-4, 1e-3), torch.float64: (1e-10, 1e-9), torch.float16: (4e-3, 2e-2)}
RTOL[torch.bfloat16] = (3e-2, 0.15)
# And on top, this many times the most that rounding moves the truth, seen in a few samples, then in many.
MOVEMENTS, SAMPLES = 8.0, (6, 40)
# A GPU's kernels may round more: 1/a is rsqrt(a)², and its log2 has errors of 2 parts in 10⁷. In the interpreter, which
# has neither, seed 349 of 1,000 asked for it: 4e-10 where two gradients should cancel to 0. That the two are computed
# apart there is the likely cause; it was not traced.
MORE_ON_GPU = 4.0


@dataclass
class Failure:
    seed: int
    path: str
    output: str
    problem: str
    detail: str
    case: str

    @property
    def kind(self) -> str:
        return f"{self.path}: {self.problem} in {self.output} with {self.case.split(' f=GenAgg(')[-1].split('(')[0]}"

    def __str__(self) -> str:
        path = f" --paths {self.path}" * (self.path in PATHS)
        return (
            f"FAILED seed {self.seed}, path {self.path}, {self.output}: {self.problem}, {self.detail}\n"
            f"  {self.case}\n  repeat: python -m tests.fuzz --only {self.seed}{path}"
        )


def prepare() -> None:
    """For each process of many, of which the cases are small."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def check(seed: int, device: str = "cpu", paths: Sequence[str] = USUAL) -> list[Failure]:
    """What is wrong with the case of this seed, on these paths; an empty list, if nothing."""
    try:
        return _check(draw(seed), seed, device, paths)
    except Exception as error:
        raise RuntimeError(f"the truth of seed {seed} cannot be computed: {error}") from error


def _check(case: Case, seed: int, device: str, paths: Sequence[str]) -> list[Failure]:
    failures: list[Failure] = []

    def fail(path, output, problem, detail):
        failures.append(Failure(seed, path, output, problem, detail, str(case)))

    spoilt, lost = spoilt_of(case)
    y = truth_of(case, None, spoilt).values["y"]
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed)).to(case.x.dtype)
    # A result that its type cannot hold is not compared (see `_compare`), nor are the gradients that come from it.
    valid = comparable(case, spoilt | ~held(case, y)) | {"y": ~spoilt.movedim(0, case.dim)}
    truth = truth_of(case, g, spoilt)
    compute = max(
        (torch.float32 if case.x.dtype.itemsize < 4 else case.x.dtype, case.agg.alpha.dtype),
        key=lambda kind: torch.finfo(kind).eps,
    )
    noisy: list[dict[str, Tensor]] = []

    for path in paths:
        if path == "triton" and (case.autocast or case.x.dtype == torch.bfloat16):
            continue  # which the interpreter does not know
        try:
            with PATHS[path]():
                ours = run(case, g, device)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            fail(path, "call", "exception", f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})")
            continue
        for name, value in ours.items():
            true = truth.values[name]
            if value.shape != true.shape:
                fail(path, name, "shape", f"{list(value.shape)} for {list(true.shape)}")
                continue
            many = MOVEMENTS * (MORE_ON_GPU if path == "triton" or device == "cuda" else 1.0)
            problem = _compare(case, name, value, truth, valid[name], compute, noisy[: SAMPLES[0]], many)
            for samples in SAMPLES:
                if problem is None:
                    break
                while len(noisy) < samples:
                    with Rounded(torch.finfo(compute).eps, len(noisy)) as rounded:
                        noisy.append(truth_of(case, g, spoilt, rounded).values)
                problem = _compare(case, name, value, truth, valid[name], compute, noisy[:samples], many)
            if problem is not None:
                fail(path, name, *problem)
        y = ours["y"]
        if y.dtype != case.x.dtype:
            fail(path, "y", "type", f"{y.dtype} for {case.x.dtype}")
        elif y.shape == lost.shape and not y[lost].isnan().all():
            fail(path, "y", "NaN lost", f"{y[lost][~y[lost].isnan()][:3].tolist()} from a set that holds NaN")
    return failures


def _compare(case: Case, name, ours, truth: Truth, valid, compute, noisy, many: float) -> tuple[str, str] | None:
    """What is wrong with one output, and where most, or None."""
    true, scale = truth.values[name], truth.scales[name]
    own = torch.finfo(ours.dtype)
    rtol = RTOL[compute][name != "y"] + (2 * own.eps if ours.dtype.itemsize < 4 else 0)
    # Below this, numbers or those on the way to them have few digits left, or none.
    floor = max(
        1000 * torch.finfo(compute).smallest_normal, 4 * own.smallest_normal * (own.eps if own.bits < 32 else 1)
    )
    limit = rtol * scale + floor
    largest = min(own.max / 4, 1e100 if name == "weight" else torch.inf)  # see the clamps in `truth.py`
    fits = (true.abs() < largest) & ((scale < torch.finfo(compute).max / 1e4) | (name == "y"))
    for sample in noisy:
        moved = (sample[name] - true).abs()
        fits = fits & (sample[name].abs() < largest)
        limit = torch.maximum(limit, rtol * scale + floor + many * torch.where(moved.isnan(), torch.inf, moved))
    error = (ours.double() - true).abs()
    error = torch.where(error.isnan(), torch.inf, error)
    wrong = (error > limit) & (limit < largest) & fits & valid
    if not wrong.any():
        return None
    worst = int(torch.where(wrong, error / limit, 0.0).argmax())
    at = list(map(int, torch.unravel_index(torch.tensor(worst), wrong.shape)))
    value, expected, allowed = (t.flatten()[worst].item() for t in (ours.double(), true, limit.expand_as(true)))
    problem = "error" if abs(value) < float("inf") else "not finite"
    return (
        problem,
        f"{int(wrong.sum())} of {wrong.numel()}, worst at {at}: {value:.9g} for {expected:.9g} ± {allowed:.2g}",
    )
