"""The fused path on a CPU: runs the compiled kernels over pieces of the rows, on as many threads as torch uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from .c_compile import load_source
from .c_numbers import DOUBLE, FLOAT
from .c_source import Kind, c_source
from .csr import CSR, PIECES
from .objective import Objective
from .recipes import recipe
from .sections import Sections

__all__ = ["backward", "forward", "inversion", "ready", "squares"]

SMALL = 1 << 15  # Below this many numbers, a second thread does not pay.


@cache
def _sections(name: str, learned: bool = True) -> Sections:
    return Sections(recipe(name), learned)


@cache
def _library(name: str, kind: Kind) -> ctypes.CDLL | None:
    return load_source(c_source(_sections(name, kind.learned), kind))


def _width(name: str, features: int) -> int:
    """Numbers in a vector: 16 of float32 or 8 of float64, fewer for fewer features."""
    most = (DOUBLE if recipe(name).double_terms else FLOAT).width
    return min(most, 16 if features > 8 else 8 if features > 4 else 4)


def _type(name: str) -> torch.dtype:
    """The type of what is kept on the way to x and y."""
    return torch.float64 if recipe(name).double_terms else torch.float32


def _kernels(name: str, centred: bool, x: Tensor, factor: Tensor | None, rows: CSR, channels: int, **more: bool) -> Any:
    of = Kind(centred, _width(name, x.size(1)), channels > 1, rows.col is not None, factor is not None, **more)
    return _library(name, of)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def ready(
    name: str, centred: bool, features: int, held: bool, gather: bool, weighted: bool, squares: bool = False
) -> bool:
    """Whether there are kernels for this recipe: with a C++ compiler on the machine, yes."""
    return _library(name, Kind(centred, _width(name, features), held, gather, weighted, squares)) is not None


def _run(call: Any, arguments: list[Any], bounds: Tensor, size: int) -> None:
    """Calls a kernel over the pieces between the bounds, on as many threads as torch uses."""
    threads = torch.get_num_threads() if size >= SMALL else 1
    if call.argtypes is None:  # a long long is handed over as a pointer is
        call.argtypes = [ctypes.c_void_p] * (len(arguments) + 3)
    pointers = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
    call(*pointers, bounds.data_ptr(), bounds.numel() - 1, threads)


def forward(
    name: str,
    centred: bool,
    x: Tensor,
    factor: Tensor | None,
    rows: CSR,
    theta: Sequence[Tensor],
    channels: int = 1,
) -> Tensor:
    """The f-mean of each row.

    Arguments:
        channels: 1: all features share θ; else every so many-th feature does, and each of θ has a first dimension
            of this size.
    """
    size, features = rows.size, x.size(1)
    library = _kernels(name, centred, x, factor, rows, channels)
    y = x.new_empty(size, features)
    flat = _flat(theta, channels, features)
    table = _table(name, library, x, flat, rows) if not centred and factor is None else None
    arguments = [x, factor, rows.ptr, rows.col, rows.edge, table, y, flat, features]
    _run(library.forward, arguments, rows.pieces, _work(x, rows))
    return y


def backward(
    name: str,
    centred: bool,
    grad: Tensor,
    x: Tensor,
    factor: Tensor | None,
    rows: CSR,
    sources: Callable[[], CSR] | None,
    theta: Sequence[Tensor],
    by_x: bool,
    by_factor: bool,
    by_theta: bool,
    objective: Objective | None,
    channels: int = 1,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None]:
    """∂L/∂x, ∂L/∂factor, ∂L/∂(parameters, β), and the inversion objective; without `by_theta` only the first two count.

    With `sources`, x are nodes, each an element of many rows, and it finds the rows of the transposed matrix.
    """
    of, features, work = recipe(name), x.size(1), _work(x, rows)
    flat, columns = _flat(theta, channels, features), (of.parameters + 2) * (features if channels > 1 else 1)
    whole = _kernels(name, centred, x, factor, rows, channels)
    table = _table(name, whole, x, flat, rows) if not centred and factor is None else None
    library = whole if by_theta else _kernels(name, centred, x, factor, rows, channels, learned=False)
    given = [grad, x, factor, rows.ptr, rows.col, rows.edge, table]
    blocks = -(-features // _width(name, features))
    # With β = 0, f of each node is looked at once for all its edges, in the rows of the transposed matrix; else the
    # threads share out the features, if there are enough of them.
    by_features = by_x and sources is not None and centred and blocks >= torch.get_num_threads()
    edges = 0 if factor is None else factor.numel()
    dfactor = torch.zeros(blocks if by_features else 1, edges) if by_factor else None
    dx: Tensor | None
    if sources is None or by_features or not by_x:
        dx = None if not by_x else torch.zeros_like(x) if by_features else torch.empty_like(x)
        pieces, all_rows = (torch.arange(blocks + 1), rows.size) if by_features else (rows.pieces, 0)
        partial = torch.zeros(pieces.numel() - 1, columns)
        _run(library.backward, [*given, dx, dfactor, edges, all_rows, partial, flat, features], pieces, work)
        sums = partial.sum(0)
    else:
        dx, transposed = torch.empty_like(x), sources()
        partial = torch.zeros(rows.pieces.numel() - 1, columns)
        planes = len(_sections(name).handed) + 2 * centred + of.scales_
        state = x.new_empty(rows.size, planes, features, dtype=_type(name))
        flags = torch.zeros(rows.size, blocks, dtype=torch.uint8)
        _run(library.backward_rows, [*given, state, flags, partial, flat, features], rows.pieces, work)
        sums, partial = partial.sum(0), torch.zeros(transposed.pieces.numel() - 1, columns)
        given = [x, factor, transposed.ptr, transposed.col, transposed.edge, state, flags]
        _run(library.backward_sources, [*given, dx, dfactor, partial, flat, features], transposed.pieces, work)
        sums = sums + partial.sum(0)
    d = _by_channel(sums, channels, features)
    dfactor = None if dfactor is None else dfactor.sum(0)
    if objective is None:
        return dx, dfactor, d, None
    found = _inversion(name, whole, x, factor, rows, flat, objective.step, channels) / objective.numbers
    d[:-2] += objective.weight * d[-1] * found[1:]  # d[-1] is Σ|∂L/∂y|
    return dx, dfactor, d, found[0].mean()


def squares(
    name: str,
    centred: bool,
    x: Tensor,
    target: Tensor,
    rows: CSR,
    theta: Sequence[Tensor],
    objective: Objective | None,
    channels: int,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Σ(y − target)² of each channel, its gradient by (parameters, β), and that of the inversion objective."""
    features, held = x.size(1), channels > 1
    library = _kernels(name, centred, x, None, rows, channels, squares=True)
    flat = _flat(theta, channels, features)
    table = None if centred else _table(name, library, x, flat, rows)
    partial = torch.zeros(rows.pieces.numel() - 1, (recipe(name).parameters + 3) * (features if held else 1))
    given = [target, x, None, rows.ptr, rows.col, rows.edge, table, partial, flat, features]
    _run(library.squares, given, rows.pieces, _work(x, rows))
    d = _by_channel(partial.sum(0), channels, features)
    pull = None
    if objective is not None:
        found = inversion(name, centred, x, None, rows, theta, objective.step, channels)[1:]
        pull = objective.weight / objective.numbers * d[-2] * found
    return d[-1], d[:-2], pull


def _table(name: str, library: Any, x: Tensor, flat: Tensor, rows: CSR) -> Tensor | None:
    """The terms of f of every node, ``[N, terms, D]``, where rows have several elements for each."""
    if rows.col is None or rows.col.numel() < 2 * x.size(0) or not _sections(name).tabled:
        return None
    table = x.new_empty(x.size(0), recipe(name).terms_, x.size(1), dtype=_type(name))
    bounds = torch.arange(PIECES + 1) * x.size(0) // PIECES
    _run(library.node_terms, [x, table, flat, x.size(1)], bounds, table.numel())
    return table


def inversion(
    name: str,
    centred: bool,
    x: Tensor,
    factor: Tensor | None,
    rows: CSR,
    theta: Sequence[Tensor],
    step: int,
    channels: int = 1,
) -> Tensor:
    """Σ(|f⁻¹(f(v))| − |v|)² over every step-th element, then its gradient by the parameters."""
    library = _kernels(name, centred, x, factor, rows, channels)
    return _inversion(name, library, x, factor, rows, _flat(theta, channels, x.size(1)), step, channels)


def _inversion(
    name: str, library: Any, x: Tensor, factor: Tensor | None, rows: CSR, flat: Tensor, step: int, channels: int
) -> Tensor:
    features = x.size(1)
    places, of_rows = rows.sample(step)
    partial = torch.zeros((recipe(name).parameters + 2) * (features if channels > 1 else 1))
    given = [x, factor, rows.ptr, rows.col, rows.edge, places, of_rows, step, partial, flat, features]
    _run(library.inversion, given, _whole(places.numel()), 0)
    return _by_channel(partial, channels, features)[:-1]


@lru_cache
def _whole(count: int) -> Tensor:
    """The bounds of one piece."""
    return torch.tensor([0, count])


def _flat(theta: Sequence[Tensor], channels: int, features: int) -> Tensor:
    """All parameters in a row; where features hold their own, ``[parameters, features]``."""
    if channels == 1:
        return torch._C._nn.flatten_dense_tensors(list(theta))  # in C++, where it is fast
    return torch.cat([p.reshape(channels, -1) for p in theta], 1).t().repeat(1, features // channels)


def _by_channel(sums: Tensor, channels: int, features: int) -> Tensor:
    """``[parameters + 2]``, or ``[parameters + 2, channels]``: features that share a θ add up."""
    return sums if channels == 1 else sums.view(-1, features // channels, channels).sum(1)


def _work(x: Tensor, rows: CSR) -> int:
    return x.size(1) * (x.size(0) if rows.col is None else rows.col.numel())
