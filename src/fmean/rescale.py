"""`rescale`: the f of every GenAgg begins at the scale of the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .genagg import GenAgg

__all__ = ["rescale"]


def rescale(model: Any, run: Callable[[Any], object]) -> Any:
    r"""Every GenAgg ⨁ of a model becomes s·⨁(x/s), with s the standard deviation of the elements it is given.

    For before training. An f bends at the scale of its parameters, |x| about 1, and is nearly a straight line well
    below that. There GenAgg is a mean, and the gradient that would make it another aggregation is small. In a deep
    network without normalisation the values are far from 1. Nothing is changed in a GenAgg whose f is fixed, or an f of
    your own without `rescale`; with `channels`, each feature has an s of its own.

    Arguments:
        model: Any module with GenAggs in it, or a GenAgg. It is changed in place. With DistributedDataParallel,
            before it is wrapped, with the same data in all processes.
        run: Runs a model on real data, as in ``lambda model: model(x, edge_index)``. It is called once; the layers are
            rescaled as the data gets to them, so that each one sees what comes of the others.

    Returns:
        The model.

    Example:
        >>> from torch_geometric.nn import GraphConv
        >>> conv = GraphConv(8, 16, aggr=GenAgg())
        >>> x, edge_index = 0.01 * torch.randn(3, 8), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> conv = rescale(conv, lambda conv: conv(x, edge_index))
        >>> bool(conv.aggr_module.f.parts[0].p > 20)
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    aggs = [agg for agg in model.modules() if isinstance(agg, GenAgg)]
    if not aggs:
        raise ValueError(f"there is no GenAgg in {type(model).__name__}")
    left = {id(agg) for agg in aggs if hasattr(agg.f, "rescale")}

    def before(agg: GenAgg, given: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        if id(agg) in left:
            left.discard(id(agg))  # one that several layers share begins at the scale of the first
            agg.f.rescale(_scale(given[0] if given else named["x"], agg))

    # A hook on the aggregation has layers of fmean.nn make their messages, as PyG does.
    hooks = [agg.register_forward_pre_hook(before, with_kwargs=True) for agg in aggs]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.no_grad():
            run(model)
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for buffer, value in buffers:  # such as the running mean of BatchNorm
                buffer.copy_(value)
    return model


def _scale(x: Tensor, agg: GenAgg) -> Tensor:
    """The standard deviation of all elements, or of those of each feature; 1 where there is none."""
    flat = x.detach().float().reshape(-1, x.size(-1) if agg.channels > 1 else 1)
    s = torch.where(flat.isfinite(), flat, torch.nan)
    s = (s - s.nanmean(0)).square().nanmean(0).sqrt()
    s = torch.where(s > 0, s, 1.0)  # NaN, too
    return (s if agg.channels > 1 else s[0]).to(agg.alpha.dtype)
