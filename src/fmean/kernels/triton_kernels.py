"""The fused path on a GPU: compiles the Triton kernels of a recipe when they are first needed, and launches them."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .csr import CSR
from .objective import Objective
from .recipes import recipe
from .sections import Sections
from .triton_source import FLAG, triton_source

__all__ = ["backward", "forward", "inversion"]


Theta = Sequence[Tensor]  # the parameters: those of f, α, and β where x is centred


class Tile(NamedTuple):
    """What a program takes at a time: rows, or elements of one row, and features; with so many warps."""

    rows: int
    elements: int
    features: int
    warps: int


FORWARD, BACKWARD, LONG_ROWS = Tile(2, 1, 64, 1), Tile(1, 1, 64, 1), Tile(1, 128, 8, 8)
# What an element of the inversion objective's sample asks of its row is the mean; the second is for long rows.
SAMPLED, SAMPLED_LONG = Tile(1, 1, 64, 1), Tile(1, 32, 64, 8)
MANY = 1 << 18  # From this many rows on, a program of backward takes
STEPS = 8  # as many in succession: their lines of partial sums would take more memory than x.


@cache
def _kernels(name: str, centred: bool, held: bool) -> Any:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    from . import triton_rows

    source = triton_source(Sections(recipe(name)), centred, held)
    file = f"<fmean {name}{' centred' * centred}{' held' * held}>"
    # Triton reads the source of a function through inspect, which asks linecache.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    # The logarithm that a GPU has an instruction for, to 2 parts in 10⁷; in Triton's interpreter there is none.
    space["fast_log2"] = triton_rows.log2 if triton.knobs.runtime.interpret else libdevice.fast_log2f
    space |= {name: getattr(triton_rows, name) for name in triton_rows.__all__}
    exec(compile(source, file, "exec"), space)
    return SimpleNamespace(**space)


class _Part(NamedTuple):
    """Rows of one kind, and how a kernel is launched over them."""

    listed: tuple[Tensor, ...]
    numbers: tuple[int, int]
    programs: int
    blocks: int
    """How many programs share out the features of a row."""
    lines: int
    """How many programs there are for each block of features."""
    constants: tuple[int, ...]
    warps: int
    compiled: dict[Any, Any]


def _plan(rows: CSR, features: int, tile: Tile) -> list[_Part]:
    """The short rows, and the long ones, if there are any, with more threads each. Kept with the rows."""
    plans = rows.__dict__.setdefault("plans", {})
    if (features, tile) not in plans:
        parts = plans[features, tile] = []
        for listed, one in zip(rows.lists, (tile, LONG_ROWS), strict=True):
            count = listed.rows.numel()
            if count:
                block = _block(features, one.features)
                steps = STEPS if count >= MANY and tile is BACKWARD else 1
                blocks, constants = _cdiv(features, block), (steps, one.rows, one.elements, block)
                lines = _cdiv(count, one.rows * steps)
                numbers, programs = (features, count), lines * blocks
                parts.append(_Part(listed, numbers, programs, blocks, lines, constants, one.warps, {}))
    return plans[features, tile]  # type: ignore[no-any-return]


def _sample_part(rows: CSR, features: int, step: int) -> _Part:
    """The sample that the inversion objective is taken of, a program for each of its elements."""
    plans, key = rows.__dict__.setdefault("plans", {}), (features, step)
    if key not in plans:
        places, of_rows = rows.sample(step)
        tile = SAMPLED_LONG if rows.lists[1].rows.numel() else SAMPLED
        block = _block(features, tile.features)
        blocks, constants = _cdiv(features, block), (tile.rows, tile.elements, block)
        listed, lines = (places, *rows.bounds(of_rows)), places.numel()
        plans[key] = _Part(listed, (features, step), lines * blocks, blocks, lines, constants, tile.warps, {})
    return plans[key]  # type: ignore[no-any-return]


class _BackwardPlan(NamedTuple):
    """The rows, those of the transposed matrix, the sample of the inversion objective; and all their programs."""

    plan: list[_Part]
    to: list[_Part]
    sampled: _Part | None
    programs: int
    lines: int


def _backward_plan(rows: CSR, transposed: CSR | None, features: int, step: int | None) -> _BackwardPlan:
    plans, key = rows.__dict__.setdefault("plans", {}), (features, step, transposed is not None)
    if key not in plans:
        plan = _plan(rows, features, BACKWARD)
        to = [] if transposed is None else _plan(transposed, features, BACKWARD)
        sampled = None if step is None else _sample_part(rows, features, step)
        parts = [*plan, *to, *([sampled] if sampled else [])]
        programs, lines = sum(part.programs for part in parts), sum(part.lines for part in parts)
        plans[key] = _BackwardPlan(plan, to, sampled, programs, lines)
    return plans[key]  # type: ignore[no-any-return]


class _Compiled(NamedTuple):
    """A kernel that Triton has found for one part, and those of its arguments that are the same at every launch."""

    launch: Callable[..., None]
    of_rows: tuple[int | None, ...]
    constants: tuple[Any, ...]


class _Launcher:
    """What all kernels of a call are given."""

    def __init__(self, x: Tensor, factor: Tensor | None, theta: Theta) -> None:
        self.x, self.factor, self.theta = x, factor, theta
        self.of_x, self.of_theta = _pointers((x, factor)), tuple([p.data_ptr() for p in theta])
        self.aligned = _aligned(self.of_x) and _aligned(self.of_theta)
        self.kind = x.dtype, factor is None or factor.dtype
        # Asked for once, and not by Triton at every launch.
        self.stream = torch._C._cuda_getCurrentRawStream(x.device.index) if x.is_cuda else None

    def run(
        self,
        kernel: Any,
        rows: CSR,
        part: _Part,
        outputs: tuple[Any, ...],
        blocks: int = 0,
        line: int = 0,
        more: tuple[float, ...] = (),
    ) -> None:
        # A new kernel is found by Triton, which looks at all arguments: at their types, and at whether pointers and
        # numbers are multiples of 16. From then on only what may have changed is looked at, since Triton's look
        # takes longer than a kernel does; and where something is not as usual, Triton looks again. Nor is Triton then
        # given tensors, of each of which it would ask where it lies.
        key, to = (kernel, self.kind), _pointers(outputs)
        usual = self.aligned and _aligned(to)
        known = part.compiled.get(key) if usual else None
        changing = *part.numbers, blocks, line, *more
        if known is not None:
            self._launch(known, to, changing)
            return
        x, factor = self.x, self.factor
        of_rows = *part.listed, rows.col, rows.edge
        constants = rows.col is not None, rows.edge is not None, factor is not None, *part.constants
        grid = part.programs, 1, 1
        # The rows of another batch ask for the same kernel, if Triton would see no difference.
        like = tuple([None if t is None else (t.dtype, t.data_ptr() & 15) for t in of_rows])
        alike = key, constants, part.warps, part.numbers[0], like, x.get_device()
        found = _found.get(alike) if usual else None
        if found is None:
            given = *outputs, x, factor, *of_rows, *self.theta, *changing, *constants
            found = kernel[grid](*given, num_warps=part.warps)
            if usual and found is not None:  # None in Triton's interpreter
                _found[alike] = found
            return
        # A part goes with its rows, whose tensors stay where they are.
        part.compiled[key] = known = _Compiled(found[grid], _pointers(of_rows), constants)
        self._launch(known, to, changing)

    def _launch(self, known: _Compiled, to: tuple[int | None, ...], changing: tuple[Any, ...]) -> None:
        given = *to, *self.of_x, *known.of_rows, *self.of_theta, *changing, *known.constants
        known.launch(*given, stream=self.stream)


_found: dict[Any, Any] = {}
"""The kernels that Triton has found, by all that it looks at in their arguments."""


def _pointers(tensors: Sequence[Tensor | None]) -> tuple[int | None, ...]:
    return tuple([None if t is None else t.data_ptr() for t in tensors])


def _aligned(pointers: Sequence[int | None]) -> bool:
    for p in pointers:  # noqa: SIM110 - faster than any()
        if p is not None and p & 15:
            return False
    return True


def forward(
    name: str, centred: bool, x: Tensor, factor: Tensor | None, rows: CSR, theta: Theta, channels: int = 1
) -> Tensor:
    """The f-mean of each row.

    Arguments:
        channels: 1: all features share θ; else every so many-th feature does, and each of θ has a first dimension of
            so many.
    """
    y = x.new_empty(rows.size, x.size(1))
    launcher = _Launcher(x, factor, _of_features(theta, channels, x.size(1)))
    kernel = _kernels(name, centred, channels > 1).forward
    with _on(x):
        for part in _plan(rows, x.size(1), FORWARD):
            launcher.run(kernel, rows, part, (y,))
    return y


def backward(
    name: str,
    centred: bool,
    grad: Tensor,
    x: Tensor,
    factor: Tensor | None,
    rows: CSR,
    sources: Callable[[], CSR] | None,
    theta: Theta,
    by_x: bool,
    by_factor: bool,
    by_theta: bool,
    objective: Objective | None,
    channels: int = 1,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """∂L/∂x, ∂L/∂factor, ∂L/∂(parameters, β), and the inversion objective.

    With `sources`, x are nodes, each an element of many rows, and it finds the rows of the transposed matrix.
    """
    of, held, features = recipe(name), channels > 1, x.size(1)
    kernels = _kernels(name, centred, held)
    transposed = None if sources is None else sources()
    plan, to, sampled, programs, lines = _backward_plan(rows, transposed, features, objective and objective.step)
    sums = of.parameters + 1 + of.approximate
    # A line for each program; with parameters of each feature for all blocks of features of a row together.
    shape = (lines, sums, features) if held else (programs, sums)
    partial = x.new_empty(shape, dtype=torch.float32)
    launcher, line = _Launcher(x, factor, _of_features(theta, channels, features)), 0
    dx = torch.empty_like(x)
    dfactor, blocks = _of_factor(factor, to or plan)
    with _on(x):
        if transposed is None:
            for part in plan:
                launcher.run(kernels.backward, rows, part, (grad, dx, dfactor, partial), blocks, line)
                line += part.lines if held else part.programs
        else:
            planes = of.terms_ + (of.reduction == "max") + 2 * centred + of.scales_
            kind = torch.float64 if of.double_terms else torch.float32
            state = x.new_empty(rows.size, planes, features, dtype=kind)
            flags = x.new_empty(rows.size, _cdiv(features, FLAG), dtype=torch.bool) if of.scales_ else None
            for part in plan:
                launcher.run(kernels.backward_rows, rows, part, (grad, state, flags, partial), 0, line)
                line += part.lines if held else part.programs
            for part in to:
                outputs = state, flags, dx, dfactor, partial
                launcher.run(kernels.backward_sources, transposed, part, outputs, blocks, line)
                line += part.lines if held else part.programs
        if sampled is not None and objective is not None:
            norm = torch.linalg.vector_norm(grad, 1, 0 if held else None, dtype=torch.float32)
            norm = _of_features([_by_channel(norm[None], channels)[0]], channels, features)[0] if held else norm
            more = objective.weight, float(objective.numbers)
            launcher.run(kernels.inversion, rows, sampled, (norm, partial), 0, line, more)
    d = _by_channel(partial.sum(0), channels)
    loss = d.select(0, -1) if objective is not None else None
    loss = loss.mean() if held and loss is not None else loss
    return dx, dfactor.sum(1) if by_factor and dfactor is not None else None, d, loss


def inversion(
    name: str, centred: bool, x: Tensor, factor: Tensor | None, rows: CSR, theta: Theta, step: int, channels: int = 1
) -> Tensor:
    """Σ(|f⁻¹(f(v))| − |v|)² over every step-th element, then its gradient by the parameters."""
    sampled = _sample_part(rows, x.size(1), step)
    held, features, sums = channels > 1, x.size(1), recipe(name).parameters + 2
    partial = theta[0].new_empty((sampled.lines, sums, features) if held else (sampled.programs, sums))
    with _on(x):
        norm, kernel = theta[0].new_ones(features if held else ()), _kernels(name, centred, held).inversion
        launcher = _Launcher(x, factor, _of_features(theta, channels, features))
        launcher.run(kernel, rows, sampled, (norm, partial), more=(1.0, 1.0))
    d = _by_channel(partial.sum(0), channels)
    return torch.cat([d[-1:], d[:-2]])


def _of_features(theta: Theta, channels: int, features: int) -> Theta:
    """θ of each feature, in the order of the features; where all share it, or there are as many, as it is."""
    if channels in (1, features):
        return theta
    return [p.repeat(features // channels, *[1] * (p.dim() - 1)) for p in theta]


def _by_channel(sums: Tensor, channels: int) -> Tensor:
    """``[sums]``, or ``[sums, channels]``: features that share a θ add up."""
    return sums if channels == 1 or sums.size(1) == channels else sums.view(len(sums), -1, channels).sum(1)


def _of_factor(factor: Tensor | None, plan: list[_Part]) -> tuple[Tensor | None, int]:
    """Room for the gradients of the factors, which every block of features adds to; and how many blocks there are."""
    if factor is None:
        return None, 0
    blocks = max(part.blocks for part in plan)
    return factor.new_zeros(factor.numel(), blocks, dtype=torch.float32), blocks


def _on(x: Tensor) -> Any:
    away = x.is_cuda and x.get_device() != torch._C._cuda_getDevice()
    return torch.cuda.device(x.device) if away else nullcontext()


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _block(features: int, most: int) -> int:
    """A power of two that holds the features, or as many as a program takes."""
    return min(most, max(4, 1 << (features - 1).bit_length()))
