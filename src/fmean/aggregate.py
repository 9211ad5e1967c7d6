"""The augmented f-mean: the paper's formula, once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from .functions import ScalarFunction
from .functions.inversion import attach_inversion
from .inputs import as_parameter, as_weight, check_function, check_inverse, check_output, check_sets, check_x
from .kernels import Segments, as_int64, fused_f_mean

__all__ = ["augmented_f_mean", "neighbour_f_mean"]


def augmented_f_mean(
    x: Tensor,
    f: Any,
    alpha: float | Tensor = 0.0,
    beta: float | Tensor = 0.0,
    index: Tensor | None = None,
    ptr: Tensor | None = None,
    dim_size: int | None = None,
    dim: int = -2,
    weight: Tensor | None = None,
) -> Tensor:
    r"""y = f⁻¹( n^(α−1) · Σ f(xᵢ − β·μ) ), for every set of elements along `dim` and every feature.

    The sets are given by `index` (sorted or not) or by `ptr`; with neither, all elements form one set, and
    `dim` has size 1 in the result, as in PyG. An empty set gives 0.

    float16 and bfloat16 are computed in float32; the result has the type of `x`.

    Arguments:
        x: The elements, ``[..., N, ...]`` with N along `dim`.
        f: A `ScalarFunction`, or any object with `forward` and `inverse`.
        alpha: α, one number; or one for each of f's k channels ``[k]``; or one for each feature of the last
            dimension, ``[F]``, with k channels ``[F, k]``.
        beta: β, one number or ``[F]``.
        index: The set of each element, ``[N]``.
        ptr: The bounds of each set, ``[dim_size + 1]``: set i has the elements ``ptr[i]`` to ``ptr[i+1] − 1``.
        dim_size: The number of sets. (default: the largest index plus one)
        dim: The dimension of the elements.
        weight: Weights ≥ 0, ``[N]`` or of a shape that expands to that of `x`: Σ w·f(x) with n = Σw, so that
            a weight of 2 counts an element twice, and a weight of 0 leaves it out.

    Example:
        >>> from fmean.functions import Power
        >>> x = torch.tensor([[3.0], [4.0], [6.0]])
        >>> augmented_f_mean(x, Power(2), alpha=1.0, index=torch.tensor([0, 0, 1]))  # the euclidean norm
        tensor([[5.],
                [6.]])
    """
    check_x(x, dim)
    index, ptr, size = check_sets(x.size(dim), x.device, index, ptr, dim_size)
    features = 1 if x.dim() == 1 or dim % x.dim() == x.dim() - 1 else x.size(-1)
    check_function(f, features)
    if weight is None:
        first = dim in (0, -x.dim())  # a view less for autograd to keep track of
        y = fused_f_mean(x if first else x.movedim(dim, 0), f, alpha, beta, index, ptr, size)
        if y is not None:
            return y if first else y.movedim(0, dim)

    with _no_autocast(x.device.type):
        kind = torch.float32 if x.dtype.itemsize < 4 else x.dtype
        z = x.movedim(dim, 0).to(kind)
        w = None
        if weight is not None:
            w = as_weight(weight, x, dim).to(kind)
            z = torch.where((w == 0) & ~z.isfinite(), 1.0, z)  # 0 · ∞ is NaN, but what has no weight is not there
        sets = Segments.of(z.size(0), index, ptr, size)
        n = sets.sum(z.new_ones(z.size(0), *[1] * (z.dim() - 1)) if w is None else w)
        empty = n == 0
        n = torch.where(empty, 1, n).to(kind)

        shift: float | Tensor = 0.0
        translates = getattr(f, "translates", False)
        if isinstance(beta, Tensor) or beta != 0:
            mu = sets.sum(z if w is None else w * z) / n
            shift = (as_parameter(beta, "beta", features, 1, z) * mu).to(kind)
            z = z if translates else z - sets.gather(shift)

        y = _f_mean(z, f, alpha, sets, n, empty, w, features)
        y = y - shift if translates else y
        y = torch.where(empty, 0.0, y)
        y = attach_inversion(y, f, z, w)
    return y.movedim(0, dim).to(x.dtype)


def neighbour_f_mean(
    x: Tensor,
    f: Any,
    alpha: float | Tensor,
    beta: float | Tensor,
    source: Tensor,
    index: Tensor,
    dim_size: int,
    factor: Tensor | None = None,
) -> Tensor:
    """`augmented_f_mean` of the messages factorₑ · x[sourceₑ], where fused kernels can without writing them down.

    Arguments:
        x: The nodes, ``[N, ..., F]``.
        source: The node that each message comes from, ``[E]``.
        index: The set that each message goes to, ``[E]``.
        dim_size: The number of sets.
        factor: What each message is multiplied by, ``[E]``.
    """
    check_x(x, 0)
    check_function(f, x.size(-1))
    to, _, size = check_sets(source.numel(), x.device, index, None, dim_size)
    source = as_int64(source)
    if factor is not None:
        if factor.shape != source.shape:
            raise ValueError(f"edge_weight must have shape {list(source.shape)}, got {list(factor.shape)}")
        factor = factor.contiguous()
    y = fused_f_mean(x, f, alpha, beta, to, None, size, source, factor)
    if y is None:
        # In float32 at least, as backward sums over all messages of a node.
        message = x.to(torch.float32 if x.dtype.itemsize < 4 else x.dtype).index_select(0, source)
        message = message if factor is None else message * factor.view(-1, *[1] * (x.dim() - 1))
        y = augmented_f_mean(message, f, alpha, beta, to, None, size, dim=0).to(x.dtype)
    return y


def _f_mean(
    z: Tensor,
    f: Any,
    alpha: float | Tensor,
    sets: Segments,
    n: Tensor,
    empty: Tensor,
    w: Tensor | None,
    features: int,
) -> Tensor:
    """f⁻¹(n^(α−1)·Σ w·f(z)) over each set: ``[N, ...]`` → ``[size, ...]``."""
    if getattr(f, "reduction", "sum") == "max":
        # In the limit p → ±∞ the factor n^((α−1)/p) is 1, and so is a weight other than 0.
        as_parameter(alpha, "alpha", features, 1, z)
        s = f.forward(z)
        return f.inverse(sets.max(s if w is None else torch.where(w > 0, s, -torch.inf)))  # type: ignore[no-any-return]

    m, terms = _terms(z, f, sets, w)
    check_output(terms, z)
    k = terms.size(-1) if terms.dim() > z.dim() else 1
    s = sets.sum(terms if w is None else _channelled(w, terms, z) * terms)
    s = _channelled(n, s, z) ** (as_parameter(alpha, "alpha", features, k, z) - 1) * s
    s = s if terms.dtype != z.dtype else s.to(z.dtype)  # an f that needs more than z's type keeps it up to its inverse
    # f⁻¹ may have no gradient at 0, and NaN · 0 is NaN: an empty set takes some other value until it is set to 0.
    s = torch.where(_channelled(empty, s, z), 0.5, s)
    y: Tensor = f.scaled_inverse(s, m) if isinstance(f, ScalarFunction) else f.inverse(s)
    check_inverse(y, s, z)
    return y.to(z.dtype)


def _terms(z: Tensor, f: Any, sets: Segments, w: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """f(z), scaled by the maximum m of its bound over each set, and m."""
    scaled = f.scaled if isinstance(f, ScalarFunction) else lambda z, m: f.forward(z)
    m = mi = None
    with torch.no_grad():
        bound = f.bound(z) if isinstance(f, ScalarFunction) else None
        if bound is not None:
            m = sets.max(bound if w is None else torch.where(_channelled(w, bound, z) > 0, bound, -torch.inf))
            if w is not None:  # where no element has a weight, all count: backward must stay finite there too
                m = torch.where(m == -torch.inf, sets.max(bound), m)
            m = torch.where(m == -torch.inf, 0.0, m)  # an empty set
            mi = sets.gather(m)
        if w is not None:
            # What has no weight was no part of m, and may overflow; 0 · ∞ is NaN.
            finite = scaled(z, mi).isfinite()
            if mi is not None and bound is not None:
                mi = torch.where(finite, mi, torch.maximum(mi, bound))
            else:
                finite = finite if finite.dim() == z.dim() else finite.all(-1)
    if w is not None and mi is None:
        z = torch.where(finite | (w > 0), z, 1.0)
    return m, scaled(z, mi)


def _no_autocast(device: str) -> Any:
    """Autocast would take the products inside f, and so the sum, in half precision."""
    return nullcontext() if device == "meta" else torch.autocast(device, enabled=False)


def _channelled(n: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """n with a last dimension for the channels of s, if s has them and z has not."""
    return n.unsqueeze(-1) if s.dim() > z.dim() else n
