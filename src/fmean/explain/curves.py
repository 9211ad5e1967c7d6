"""The numbers behind the pictures of an aggregation: f, f⁻¹, and ⊕ of two elements."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..functions import SYMBOLIC, Exp, Mixture, Power
from ..genagg import GenAgg
from .sets import still

__all__ = ["contour", "curve", "weights"]

Numbers = list[float | None]
"""None where there is no number to draw."""


def weights(agg: GenAgg) -> list[float]:
    """What each channel of f counts for in f⁻¹: w of a mixture, else all the same."""
    if isinstance(agg.f, Mixture):
        return agg.f.w.flatten().tolist()
    k = getattr(agg.f, "k", 1)
    return [1 / k] * k


@torch.no_grad()
def curve(agg: GenAgg, low: float, high: float, like: str | None = None, points: int = 241) -> dict[str, Any]:
    """Every channel of f and f⁻¹ between two values of x, and the f of a standard aggregator over them.

    Each is stretched to [−1, 1], for an f-mean is the same for f and a·f + b (with α = 0): only the shape of f says
    something. f⁻¹ is given as points (s, x̂) with s = f(x) and x̂ = f⁻¹(s).

    Arguments:
        agg: An aggregation whose features share f.
        like: The standard aggregator.
    """
    f, x = _drawable(still(agg.f), low, high), torch.linspace(low, high, points, dtype=torch.float64)
    s = f.forward(x)
    parts = s.unbind(-1) if s.dim() > 1 else (s,)
    mixed = isinstance(f, Mixture) and f.k > 1
    labels = f.formula.split("; ") if hasattr(f, "formula") else ["f(x)"]
    share, channels = weights(agg), []
    for i, values in enumerate(parts):
        back = f.parts[i].inverse(values) if mixed else f.inverse(s)
        label = labels[i] if len(labels) == len(parts) else (labels[0] + f", channel {i + 1}" * (len(parts) > 1))
        stretched = _stretched(values)
        channels.append(
            {
                "label": label,
                "weight": round(share[i], 4),
                "y": _numbers(stretched),
                "inverse": {"s": _numbers(stretched), "x": _numbers(back)},
            }
        )
    drawn: dict[str, Any] = {"x": _numbers(x), "channels": channels, "standard": None}
    if like is not None:
        g = _drawable(SYMBOLIC[like](), low, high)
        true, back = _stretched(g.forward(x)), g.inverse(g.forward(x))
        heaviest = _stretched(parts[max(range(len(parts)), key=lambda i: share[i])])
        if (true * heaviest).nanmean() < 0:  # f and −f mean the same: draw it the way the learned one runs
            true = -true
        inverse = {"s": _numbers(true), "x": _numbers(back)}
        drawn["standard"] = {"label": like.replace("_", " "), "y": inverse["s"], "inverse": inverse}
    return drawn


@torch.no_grad()
def contour(agg: GenAgg, low: float, high: float, points: int = 61) -> dict[str, Any]:
    """⊕{x₀, x₁} over a square: x ``[points]``, z ``[points, points]`` with x₁ in rows and x₀ in columns."""
    x = torch.linspace(low, high, points, dtype=torch.float64)
    pairs = torch.stack(torch.meshgrid(x, x, indexing="xy")).flatten(1)  # x₀ runs along a row
    z = still(agg)(pairs.unsqueeze(-1), dim=0).view(points, points)
    return {"x": _numbers(x), "z": [_numbers(row) for row in z]}


class _Sharp:
    """e^(p·(x − x₀)) or (|x|/x₀)^p, with p as large as a picture can show for a limit p → ±∞, which has no graph.

    x₀ is where it is largest: e^(p·x) may overflow, but f may have any factor.
    """

    def __init__(self, f: Exp | Power, low: float, high: float) -> None:
        self.formula, self.exp, limit = f.formula, isinstance(f, Exp), math.isinf(f.p)
        self.p = math.copysign(20 / (high - low) if self.exp else 8.0, f.p) if limit else f.p
        self.top = (high if self.p > 0 else low) if self.exp else max(abs(low), abs(high), 1e-300)

    def forward(self, x: Tensor) -> Tensor:
        return (self.p * (x - self.top)).exp() if self.exp else (x.abs() / self.top) ** self.p

    def inverse(self, s: Tensor) -> Tensor:
        return s.log() / self.p + self.top if self.exp else s ** (1 / self.p) * self.top


def _drawable(f: Any, low: float, high: float) -> Any:
    """f itself, or what can be drawn for it between two values of x."""
    sharp = isinstance(f, Exp) or (isinstance(f, Power) and math.isinf(f.p))
    return _Sharp(f, low, high) if sharp else f


def _stretched(s: Tensor) -> Tensor:
    """s scaled to [−1, 1]; the few per cent farthest out, near a pole, are cut off."""
    finite = s[s.isfinite() & (s.abs() < 1e29)]
    if not finite.numel():
        return torch.full_like(s, torch.nan)
    low, high = torch.quantile(finite, torch.tensor([0.02, 0.98], dtype=s.dtype))
    out = 2 * (s - low) / (high - low).clamp_min(1e-12) - 1
    return torch.where(out.abs() <= 1.15, out, torch.nan)


def _numbers(values: Tensor) -> Numbers:
    return [float(f"{v:.7g}") if math.isfinite(v) else None for v in values.tolist()]
