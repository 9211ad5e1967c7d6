"""What the aggregations of a model are given and give while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .sets import ELEMENTS, Sets

__all__ = ["Call", "fit", "listen"]

SETS = 500  # of one call, and of each up to so many features:
COLUMNS = 16


@dataclass(frozen=True)
class Call:
    """One call of an aggregation, with the sets along the first dimension."""

    x: Tensor
    """``[E, ..., F]``"""
    index: Tensor
    """``[E]``"""
    y: Tensor
    """``[sets, ..., F]``"""

    @staticmethod
    def of(
        y: Tensor,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Call:
        if ptr is not None:
            index = torch.arange(ptr.numel() - 1, device=x.device).repeat_interleave(ptr.diff())
        elif index is None:
            index = torch.zeros(x.size(dim), dtype=torch.long, device=x.device)
        return Call(x.movedim(dim, 0), index, y.movedim(dim, 0))

    @property
    def results(self) -> Tensor:
        """Those of sets that are not empty, ``[..., F]``."""
        return self.y[self.index.bincount(minlength=self.y.size(0)) > 0]

    def sets(self, channels: int, seed: int = 0) -> Sets:
        """Some of its sets; where all features share an aggregation, of some of the features."""
        generator = torch.Generator().manual_seed(seed)
        x, index = self.x.flatten(1).double().cpu(), self.index.cpu()
        columns = torch.arange(channels) if channels > 1 else torch.randperm(x.size(1), generator=generator)[:COLUMNS]
        present = index.bincount().nonzero().squeeze(-1)
        most = int(ELEMENTS / (index.numel() / present.numel() * columns.numel()))
        order = torch.randperm(present.numel(), generator=generator)[: max(1, min(SETS, most))]
        number = torch.full((int(index.max()) + 1,), -1)
        number[present[order]] = torch.arange(order.numel())
        chosen = (number[index] >= 0).nonzero().squeeze(-1)
        chosen = chosen[number[index[chosen]].argsort(stable=True)]
        x, index = x[chosen][:, columns], number[index[chosen]]
        return Sets(x, index, order.numel())


@torch.no_grad()
def listen(run: Callable[[Any], object], model: nn.Module, aggregations: Iterable[nn.Module]) -> dict[int, Call]:
    """Runs a model, and gives the first call of each of these modules in it, by `id`, in the order of the calls."""
    found: dict[int, Call] = {}

    def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], y: Tensor) -> None:
        if id(module) not in found:
            found[id(module)] = Call.of(y, *given, **named)

    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in aggregations]
    try:
        run(model)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def fit(wanted: Call, given: Call) -> list[tuple[float, float]]:
    """a and b that bring a·given + b nearest to what is wanted, for each feature; 1 and 0, where these do as well."""
    y, s = (call.results.double() for call in (wanted, given))
    y, s = (v.reshape(-1, v.size(-1)) for v in (y, s))
    known = y.isfinite() & s.isfinite()
    n = known.sum(0).clamp_min(1)
    y, s = torch.where(known, y, 0.0), torch.where(known, s, 0.0)
    mean_y, mean_s = y.sum(0) / n, s.sum(0) / n
    dy, ds = torch.where(known, y - mean_y, 0.0), torch.where(known, s - mean_s, 0.0)
    a = ((dy * ds).sum(0) / (ds * ds).sum(0)).nan_to_num(0.0, 0.0, 0.0)
    b = mean_y - a * mean_s
    plain = ((a - 1).abs() < 0.01) & (b.abs() < 0.02 * (dy.square().sum(0) / n).sqrt())
    a, b = torch.where(plain, 1.0, a), torch.where(plain, 0.0, b)
    return list(zip(a.tolist(), b.tolist(), strict=True))
