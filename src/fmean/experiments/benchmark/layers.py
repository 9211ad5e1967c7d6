"""What each layer of a network has learned to be."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ...genagg import GenAgg
from .models import Network

__all__ = ["layers_of"]


def layers_of(network: Network) -> list[dict[str, Any]]:
    """Of each layer α and β and the standard aggregator that it is most like, with the correlation.

    Of a baseline its one number, as `parameter`; nothing of those that learn nothing.
    """
    found = []
    for agg in network.aggregations:
        if isinstance(agg, GenAgg):
            found.append({"alpha": _numbers(agg.alpha), "beta": _numbers(agg.beta), **_nearest(agg)})
        elif sum(p.numel() for p in agg.parameters()) == 1:
            found.append({"parameter": _numbers(next(agg.parameters()))})
    return found


def _numbers(value: torch.Tensor) -> Any:
    """For JSON, which knows no NaN."""
    numbers = [round(v, 4) if torch.isfinite(torch.tensor(v)) else None for v in value.detach().flatten().tolist()]
    return numbers[0] if len(numbers) == 1 else numbers


def _nearest(agg: GenAgg) -> dict[str, Any]:
    from ...explain import explain

    try:
        name, correlation = explain(copy.deepcopy(agg).cpu().eval()).nearest[0]
    except (ValueError, IndexError):  # an aggregation that gives no finite answer is like none
        return {"nearest": None, "correlation": None}
    return {"nearest": name, "correlation": round(float(correlation), 4)}
