"""The binary operators ψ that distribute over an aggregation (the paper's theorem)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .aggregate import augmented_f_mean
from .genagg import GenAgg
from .standard import standard

__all__ = ["distributive_operators"]

Number = float | Tensor
Operator = Callable[[Number, Number], Tensor]


def distributive_operators(agg: str | GenAgg) -> list[Operator]:
    r"""The ψ with ψ(c, ⊕ xᵢ) = ⊕ ψ(c, xᵢ), for a scalar f with an exact inverse and β = 0:

    - ψ(a, b) = f⁻¹(f(a) + f(b)), if α = 0, first;
    - ψ(a, b) = f⁻¹(f(a) · f(b)), for every α, last.

    With β ≠ 0 the theorem is silent. For f(x) = x and |x|ᵖ, which commute with scaling, ψ(a, b) = |a|·b
    distributes even so: this is the row "standard deviation" of the paper's table, written there as |a|·|b|,
    which holds for b ≥ 0 alone.

    Arguments:
        agg: A GenAgg, or the name of a standard aggregator.

    Example:
        >>> add, multiply = distributive_operators("mean")
        >>> add(2, 3), multiply(2, torch.tensor([3.0, 4.0]))
        (tensor(5.), tensor([6., 8.]))
    """
    if isinstance(agg, str):
        agg = standard(agg)
    if not isinstance(agg, GenAgg):
        raise TypeError(f"agg must be a GenAgg or the name of a standard aggregator, got {type(agg).__name__}")
    f = agg.f
    _check(f)

    if bool((agg.beta != 0).any()):
        if not getattr(f, "homogeneous", False):
            raise ValueError(f"the theorem needs β = 0, but β is {agg.beta.detach().tolist()} and f is {f}")
        return [lambda a, b: torch.as_tensor(a).abs() * b]

    def plus(a: Number, b: Number) -> Tensor:
        # f⁻¹(f(a) + f(b)) is the f-mean with α = 1 of {a, b}
        pair = torch.stack(torch.broadcast_tensors(*_tensors(a, b)))  # type: ignore[no-untyped-call]
        return augmented_f_mean(pair, f, alpha=1.0, dim=0).squeeze(0)

    def times(a: Number, b: Number) -> Tensor:
        a, b = _tensors(a, b)
        return f.times(a, b) if hasattr(f, "times") else f.inverse(f.forward(a) * f.forward(b))  # type: ignore[no-any-return]

    limit = getattr(f, "reduction", "sum") == "max"  # there n^((α−1)/p) is 1: α says nothing
    return [plus, times] if limit or bool((agg.alpha == 0).all()) else [times]


def _tensors(a: Number, b: Number) -> tuple[Tensor, Tensor]:
    """Both as tensors; a plain number takes the type and device of the other one."""
    if not isinstance(a, Tensor):
        a = b.new_tensor(a) if isinstance(b, Tensor) else torch.tensor(float(a))
    return a, b if isinstance(b, Tensor) else a.new_tensor(b)


def _check(f: Any) -> None:
    k = getattr(f, "k", 1)
    if k != 1:
        raise ValueError(
            f"the theorem needs a scalar f, but {type(f).__name__} has {k} channels, and a product of their values "
            "is in general not the value of f at any point"
            + ("; try one channel, f.channel(i)" if hasattr(f, "channel") else "")
        )
    if not getattr(f, "exact", True):
        raise ValueError(
            f"the theorem needs an exact inverse, but that of {type(f).__name__} is learned and only approximate; "
            'train with f="invertible" instead'
        )
    x = torch.linspace(-2, 2, 9)
    if hasattr(f, "parameters"):
        x = x.to(next(iter(f.parameters()), x))
    x = x if getattr(f, "channels", 1) == 1 else x.unsqueeze(-1).expand(-1, f.channels)
    error = (f.inverse(f.forward(x)).abs() - x.abs()).abs().max().item()
    if not error < 1e-3:
        raise ValueError(f"the theorem needs an exact inverse, but f⁻¹(f(x)) misses |x| by up to {error:g} for {f}")
