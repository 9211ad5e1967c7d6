"""What an aggregation has met in training: running quantiles of its elements and of the sizes of their sets."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["LEVELS", "Seen"]

LEVELS = (0.005, 0.05, 0.25, 0.5, 0.75, 0.95, 0.995)
"""The quantiles that are kept."""

SAMPLE = 1024  # elements looked at in one look
EVERY = 64  # calls between two looks, after those of the first calls
MEMORY = 16  # looks that the running quantiles are a mean of


class Seen(nn.Module):
    """Running quantiles, at `LEVELS`, of elements (of each feature, with channels > 1) and of the sizes of sets.

    They are saved in the `state_dict`, so that a checkpoint knows the data it was trained on. A look takes a sample of
    1,024 elements, at the calls 1, 2, 4, … 64 and then at every 64th.
    """

    values: Tensor
    sizes: Tensor
    looks: Tensor

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.calls = 0
        lead = [channels] if channels > 1 else []
        self.register_buffer("values", torch.zeros(*lead, len(LEVELS)))
        self.register_buffer("sizes", torch.zeros(len(LEVELS)))
        self.register_buffer("looks", torch.zeros(()))

    def note(self, *call: Any, **more: Any) -> None:
        """Counts a call, and looks at its elements now and then."""
        calls = vars(self)["calls"] = self.calls + 1  # past Module.__setattr__, which takes longer than all the rest
        if calls % EVERY == 0 or (calls < EVERY and calls & (calls - 1) == 0):
            self.look(*call, **more)

    @torch.no_grad()
    def look(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        source: Tensor | None = None,
        factor: Tensor | None = None,
    ) -> None:
        """Takes elements into the quantiles: x in sets as `GenAgg.forward` has them, or factorₑ·x[sourceₑ]."""
        if not x.numel() or (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            return
        elements = x.size(dim)
        if source is not None:
            if not source.numel():
                return
            elements = source.numel()
            x = x[_some(source)]
            x = x if factor is None else x * _some(factor).view(-1, *[1] * (x.dim() - 1))
        self.looks += 1
        rate = 1 / self.looks.clamp_max(MEMORY)
        flat = x.reshape(-1, x.size(-1)) if self.values.dim() > 1 else x.reshape(-1)
        self._take(self.values, _some(flat), rate)
        self._take(self.sizes, _some(_sizes(elements, index, ptr, dim_size, x.device)), rate)

    def _take(self, quantiles: Tensor, sample: Tensor, rate: Tensor) -> None:
        """quantiles ← quantiles + rate·(those of the sample − quantiles), NaN and ∞ left out."""
        sample = torch.where(sample.isfinite(), sample, torch.nan).float()
        new = torch.nanquantile(sample, _levels(sample.device), 0).movedim(0, -1)
        # Half precision ends below the size of a large set.
        largest = min(torch.finfo(kind).max for kind in (quantiles.dtype, new.dtype))
        quantiles += rate * torch.where(new.isfinite(), new.clamp(-largest, largest) - quantiles, 0.0)

    def feature(self, i: Any) -> Seen:
        """What feature i alone has met."""
        one = Seen()
        one.values = (self.values[i] if self.values.dim() > 1 else self.values).clone()
        one.sizes, one.looks = self.sizes.clone(), self.looks.clone()
        return one

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in self.named_buffers():
            state_dict.setdefault(prefix + name, buffer)  # one written before there were any is whole without them
        super()._load_from_state_dict(state_dict, prefix, *args)


@lru_cache
def _levels(device: torch.device) -> Tensor:
    return torch.tensor(LEVELS, device=device)  # on a GPU a copy, which is waited for


def _some(x: Tensor) -> Tensor:
    """Up to 1,024 rows of x."""
    return x if x.size(0) <= SAMPLE else x[_spread(x.size(0), x.device)]


def _spread(n: int, device: torch.device) -> Tensor:
    """Up to 1,024 of the numbers 0 … n−1, evenly spread but in step with no period of the data.

    Multiples of a number near 0.618·n that shares no divisor with n: no random numbers of the user's are taken.
    """
    count, step = min(n, SAMPLE), max(1, round(0.618 * n))
    while math.gcd(step, n) != 1:
        step += 1
    return torch.arange(count, device=device) * step % max(n, 1)


def _sizes(
    elements: int, index: Tensor | None, ptr: Tensor | None, dim_size: int | None, device: torch.device
) -> Tensor:
    """The size of each set, NaN where it is empty."""
    if ptr is not None:
        n = ptr.diff()
    elif index is None:
        n = torch.full((1,), elements, device=device)
    elif not index.numel():
        n = torch.zeros(1, device=device)
    else:
        size = int(index.max()) + 1 if dim_size is None else dim_size
        n = torch.zeros(size, device=device).index_add_(0, index.long(), torch.ones(index.numel(), device=device))
    return torch.where(n > 0, n.float(), torch.nan)
