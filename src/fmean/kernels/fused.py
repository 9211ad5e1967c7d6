"""The fused path: an aggregation as one operator that keeps nothing of the size of its terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ..functions import InvertibleNN, Mixture, MLPAutoencoder
from . import c_kernels
from .call import Call, FMean, forward
from .describe import describe
from .operators import f_mean_operator, inversion_operator

__all__ = ["HAS_TRITON", "Known", "fused_f_mean", "fused_terms", "known", "may_fuse", "plain"]

HAS_TRITON = find_spec("triton") is not None


WILD = (InvertibleNN, Mixture)  # the f that may leave the range of float32; a Mixture with a recipe is one of networks

# Past Function.apply, which looks at each argument for wrappers that outlived torch.func: of them only x may be one.
_apply: Any = super(torch.autograd.Function, FMean).apply

_plain = 0  # how many contexts `plain` are open


@contextmanager
def plain() -> Iterator[None]:
    """Within this context every aggregation takes the plain path, the reference for the fused ones.

    >>> from fmean import GenAgg
    >>> with plain():
    ...     y = GenAgg()(torch.randn(5, 2))
    """
    global _plain
    _plain += 1
    try:
        yield
    finally:
        _plain -= 1


def fused_f_mean(
    x: Tensor,
    f: Any,
    alpha: Any,
    beta: Any,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    source: Tensor | None = None,
    factor: Tensor | None = None,
) -> Tensor | None:
    """The f-mean of x, ``[N, ...]``, by fused kernels, or None where there are none for this f and these inputs.

    Arguments:
        source: The row of x that each element is; without it, element i is row i.
        factor: What each element is multiplied by.
    """
    found = known(x, f, alpha, beta, factor) if may_fuse(x, index, ptr, factor) else None
    if found is None:
        return None
    # Of x − β·μ two elements may be the largest by rounding alone, and share its gradient: max and min are centred
    # afterwards, on the plain path. On a GPU backward of a layer would have to find the largest again, to the last bit.
    if found.centred and found.recipe.startswith("limit") and (f.translates or (x.is_cuda and source is not None)):
        return None
    return _fused(x, *found[:4], index, ptr, size, source, factor, found.strength, f)


class Known(NamedTuple):
    recipe: str
    theta: list[Tensor | None]
    channels: int
    centred: bool
    strength: float


def known(x: Tensor, f: Any, alpha: Any, beta: Any, factor: Tensor | None = None) -> Known | None:
    """What kernels need to know of f, α and β; None where they know no such f, or x is out of its range."""
    found = describe(f, alpha)
    if found is None:
        return None
    channels, centred = found.channels, isinstance(beta, Tensor) or beta != 0
    if isinstance(beta, Tensor) and beta.dim() > (channels > 1):
        return None
    if type(f) in WILD and not x.is_cuda and not _is_tame(f, x, beta, factor):
        return None
    theta = [*found.parameters, _as_parameter(alpha, found.alphas, channels, x)]
    if centred:
        theta.append(_as_parameter(beta, 1, channels, x))
    strength = 0.0
    if type(f) is MLPAutoencoder and f.training and torch.is_grad_enabled():  # no other f with a recipe has one
        strength = float(f.inversion)
    return Known(found.recipe, theta, channels, centred, strength)


def fused_terms(
    x: Tensor,
    recipe: str,
    theta: Sequence[Tensor | None],
    channels: int,
    centred: bool,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    source: Tensor | None = None,
    factor: Tensor | None = None,
) -> Tensor | None:
    """What a recipe makes of x, ``[N, ...]``, or None where there are no kernels for it and these inputs.

    Arguments:
        recipe: Its name and numbers.
        theta: The parameters it names, α, and with `centred` β; None where one has a form that kernels do not know.
        channels: 1: all features share θ; else the size of the last dimension of x, and of the first of each of θ.
    """
    if not may_fuse(x, index, ptr, factor):
        return None
    return _fused(x, recipe, theta, channels, centred, index, ptr, size, source, factor, 0.0, None)


def _fused(
    x: Tensor,
    recipe: str,
    theta: Sequence[Tensor | None],
    channels: int,
    centred: bool,
    index: Tensor | None,
    ptr: Tensor | None,
    size: int,
    source: Tensor | None,
    factor: Tensor | None,
    strength: float,
    f: Any,
) -> Tensor | None:
    """`fused_terms` of what may be fused.

    Arguments:
        strength: Weight of the inversion objective; its value goes to `f.last_inversion_loss`.
    """
    device, float32 = x.device, torch.float32
    for p in theta:  # kernels are given bare pointers: they would not see that one leads elsewhere
        if p is None or p.dtype is not float32 or p.device != device:
            return None
    parameters = cast(Sequence[Tensor], theta)
    flat = x.dim() == 2
    if channels > 1 and (x.dim() < 2 or x.size(-1) != channels):
        return None
    z = x if flat else x.reshape(x.size(0), x.numel() // x.size(0))
    z = z if x.is_cuda or x.dtype == torch.float32 else z.float()
    call = Call(source, None if ptr is not None else index, ptr, size, recipe, centred, strength, channels)
    if torch.compiler.is_compiling():
        # With dynamic shapes, torch.compile knows no number of features; a compiler for one serves for all. Nor does it
        # know whether the index is sorted, or else has to be gathered from.
        if not x.is_cuda and not c_kernels.ready(
            recipe, centred, 16, channels > 1, source is not None, factor is not None
        ):
            return None
        y = f_mean_operator(z, factor, list(parameters), *call)
        if strength:  # its value; its gradient is a part of the operator's
            detached = [p.detach() for p in parameters]
            f.last_inversion_loss.copy_(inversion_operator(z.detach(), factor, detached, *call))
    else:
        # The same without the operator's own cost, which is as much as that of the kernel.
        z, rows = z.contiguous(), call.rows(z)
        if not x.is_cuda and not c_kernels.ready(
            recipe, centred, z.size(1), channels > 1, rows.col is not None, factor is not None
        ):
            return None
        if torch.is_grad_enabled():
            y = _apply(torch._C._functorch.unwrap_if_dead(z), factor, call, rows, f, *parameters)
        else:
            y = forward(z, factor, parameters, call, rows)
    y = y if flat else y.view(size, *x.shape[1:])
    return y if y.dtype == x.dtype else y.to(x.dtype)  # type: ignore[no-any-return]


def _is_tame(f: Any, x: Tensor, beta: Any, factor: Tensor | None) -> bool:
    """Whether f stays within float32, in which a CPU's kernels compute, on all of x."""
    networks: Any = f.parts if isinstance(f, Mixture) else [f]
    if torch.compiler.is_compiling():
        return False
    held = networks[0].channels > 1 and x.dim() > 1 and x.size(-1) == networks[0].channels
    with torch.no_grad():
        # Of each feature with an f of its own: one with large values may have a flat f, and the other way round.
        features = x.reshape(-1, x.size(-1) if held else 1)
        largest = features.abs().amax(0)
        if largest.isnan().any():  # which stays where it is
            largest = features.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).abs().amax(0)
        most = beta.abs().max() if isinstance(beta, Tensor) else abs(beta)
        largest = largest * (1 if factor is None else factor.abs().max()) * (1 + most)
        size = largest.double() * torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64, device=x.device)
        # Far below 3e38, so that sums and products with gradients are within it as well.
        return all(float(v.abs().max()) < 1e24 for network in networks for v in network.layer_values(size))


def may_fuse(x: Tensor, index: Any, ptr: Any, factor: Tensor | None) -> bool:
    return (
        x.is_cpu or (x.is_cuda and HAS_TRITON)
    ) and (
        x.dtype in (torch.float16, torch.bfloat16, torch.float32)
        and x.numel() > 0
        and not (index is None and ptr is None)
        and (index is None or index.numel() > 0)
        and (factor is None or (factor.dtype == torch.float32 and factor.device == x.device))
        and not _plain
        and not torch._C._are_functorch_transforms_active()
    )  # fmt: skip


def _as_parameter(value: Any, count: int, channels: int, x: Tensor) -> Tensor | None:
    """α or β as so many numbers, for each channel; None where it has another form."""
    if channels == 1 and isinstance(value, Tensor) and (value.shape == (count,) or (count == 1 and not value.dim())):
        return value
    lead = [channels] if channels > 1 else []
    if not isinstance(value, Tensor):
        return x.new_full((*lead, count), value, dtype=torch.float32)
    if value.dim() == 0 or (lead and value.shape == (channels, 1)):
        expanded = value.expand(*lead, count)
        return expanded.contiguous() if x.is_cuda else expanded  # a GPU's kernels are given the bare pointer
    allowed = [(*lead, count), *([(channels,)] if lead and count == 1 else [])]
    return value if tuple(value.shape) in allowed else None
