"""The fused path on a CPU: runs the compiled kernels over pieces of the rows, on as many threads as torch uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .c_compile import load_source
from .c_source import c_source
from .csr import CSR, PIECES
from .objective import Objective
from .recipes import recipe
from .sections import Sections

__all__ = ["backward", "forward", "inversion", "ready"]

SMALL = 1 << 15  # Below this many numbers, a second thread does not pay.


@cache
def _library(name: str, centred: bool, width: int) -> ctypes.CDLL | None:
    return load_source(c_source(Sections(recipe(name)), centred, width))


def _width(features: int) -> int:
    """Numbers in a vector: 16, fewer for fewer features."""
    return 16 if features > 8 else 8 if features > 4 else 4


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def ready(name: str, centred: bool, features: int) -> bool:
    """Whether there are kernels for this recipe: with a C++ compiler on the machine, yes."""
    return _library(name, centred, _width(features)) is not None


def _run(call: Any, arguments: list[Any], bounds: Tensor, size: int) -> None:
    """Calls a kernel over the pieces between the bounds, on as many threads as torch uses."""
    threads = torch.get_num_threads() if size >= SMALL else 1
    call(*map(_pointer, [*arguments, bounds, bounds.numel() - 1, threads]))


def _pointer(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_longlong(argument) if isinstance(argument, int) else ctypes.c_void_p(argument)


def forward(name: str, centred: bool, x: Tensor, factor: Tensor | None, rows: CSR, theta: Sequence[Tensor]) -> Tensor:
    size, features = rows.size, x.size(1)
    library = _library(name, centred, _width(features))
    y = x.new_empty(size, features)
    flat = _flat(theta)
    table = _table(name, library, x, flat, rows) if not centred and factor is None else None
    arguments = [x, factor, rows.ptr, rows.col, rows.edge, table, y, flat, features]
    _run(library.forward, arguments, rows.pieces, _work(x, rows))  # type: ignore[union-attr]
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
    by_factor: bool,
    objective: Objective | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """∂L/∂x, ∂L/∂factor, ∂L/∂(parameters, β), and the inversion objective.

    With `sources`, x are nodes, each an element of many rows, and it finds the rows of the transposed matrix.
    """
    of, features, work, flat = recipe(name), x.size(1), _work(x, rows), _flat(theta)
    library: Any = _library(name, centred, _width(features))
    table = _table(name, library, x, flat, rows) if not centred and factor is None else None
    given = [grad, x, factor, rows.ptr, rows.col, rows.edge, table]
    blocks = -(-features // _width(features))
    # With β = 0, f of each node is looked at once for all its edges, in the rows of the transposed matrix; else the
    # threads share out the features, if there are enough of them.
    by_features = sources is not None and centred and blocks >= torch.get_num_threads()
    edges = 0 if factor is None else factor.numel()
    dfactor = torch.zeros(blocks if by_features else 1, edges) if by_factor else None
    if sources is None or by_features:
        dx = torch.zeros_like(x) if by_features else torch.empty_like(x)
        pieces, all_rows = (torch.arange(blocks + 1), rows.size) if by_features else (rows.pieces, 0)
        partial = torch.zeros(pieces.numel() - 1, of.parameters + 2)
        _run(library.backward, [*given, dx, dfactor, edges, all_rows, partial, flat, features], pieces, work)
        d = partial.sum(0)
    else:
        dx, transposed = torch.empty_like(x), sources()
        partial = torch.zeros(rows.pieces.numel() - 1, of.parameters + 2)
        state = x.new_empty(rows.size, of.terms_ + 2 * centred + of.scales_, features)
        flags = torch.zeros(rows.size, blocks, dtype=torch.uint8)
        _run(library.backward_rows, [*given, state, flags, partial, flat, features], rows.pieces, work)
        d, partial = partial.sum(0), torch.zeros(transposed.pieces.numel() - 1, of.parameters + 2)
        given = [x, factor, transposed.ptr, transposed.col, transposed.edge, state, flags]
        _run(library.backward_sources, [*given, dx, dfactor, partial, flat, features], transposed.pieces, work)
        d = d + partial.sum(0)
    dfactor = None if dfactor is None else dfactor.sum(0)
    if objective is None:
        return dx, dfactor, d, None
    found = inversion(name, centred, x, factor, rows, theta, objective.step)
    d[:-2] += objective.weight * d[-1] * found[1:]  # d[-1] is Σ|∂L/∂y|
    return dx, dfactor, d, found[0]


def _table(name: str, library: Any, x: Tensor, flat: Tensor, rows: CSR) -> Tensor | None:
    """The terms of f of every node, ``[N, terms, D]``, where rows have several elements for each."""
    if rows.col is None or rows.col.numel() < 2 * x.size(0):
        return None
    table = x.new_empty(x.size(0), recipe(name).terms_, x.size(1))
    bounds = torch.arange(PIECES + 1) * x.size(0) // PIECES
    _run(library.node_terms, [x, table, flat, x.size(1)], bounds, table.numel())
    return table


def inversion(
    name: str, centred: bool, x: Tensor, factor: Tensor | None, rows: CSR, theta: Sequence[Tensor], step: int
) -> Tensor:
    """Σ(|f⁻¹(f(v))| − |v|)² over every step-th element, then its gradient by the parameters."""
    places, of_rows = rows.sample(step)
    partial = torch.zeros(recipe(name).parameters + 2)
    library: Any = _library(name, centred, _width(x.size(1)))
    given = [x, factor, rows.ptr, rows.col, rows.edge, places, of_rows, step, partial, _flat(theta), x.size(1)]
    _run(library.inversion, given, torch.tensor([0, places.numel()]), 0)
    return partial[:-1]


def _flat(theta: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.reshape(-1) for p in theta])


def _work(x: Tensor, rows: CSR) -> int:
    return x.size(1) * (x.size(0) if rows.col is None else rows.col.numel())
