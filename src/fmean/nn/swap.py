"""One call that fuses the layers of a model that is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.aggr import MultiAggregation

from ..genagg import GenAgg
from .fused import Fused
from .layers import GINConv, GraphConv, SAGEConv

__all__ = ["swap", "unfuse"]

Model = TypeVar("Model", bound=nn.Module)

OURS: dict[type, type] = {pyg.GraphConv: GraphConv, pyg.SAGEConv: SAGEConv, pyg.GINConv: GINConv}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}


def swap(model: Model, aggr: Callable[[], GenAgg] | None = None) -> Model:
    """Turns PyG's GraphConv, SAGEConv and GINConv layers with a `GenAgg` into those of `fmean.nn`, in place.

    Each layer stays the same object with the same parameters, buffers, hooks and name; only its class changes. So
    an optimizer made before goes on training it, and whoever holds the layer holds the fused one. Layers with
    another aggregation, and subclasses of PyG's layers, are left as they are.

    Arguments:
        model: A PyG layer, or a module with PyG layers anywhere in it.
        aggr: What makes a fresh aggregation for each of the layers, whatever theirs was: `GenAgg`, or
            ``lambda: GenAgg("mlp")``. Its parameters are new: an optimizer made before does not know them.
            (default: each layer keeps its own)

    Returns:
        The same model. A ValueError says so if there was nothing to swap.

    Example:
        >>> from torch_geometric.nn import GraphSAGE
        >>> model = swap(GraphSAGE(8, 16, num_layers=2, out_channels=4), aggr=GenAgg)
        >>> [type(conv).__module__ for conv in model.convs]
        ['fmean.nn.layers', 'fmean.nn.layers']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(aggr, nn.Module) or not (aggr is None or callable(aggr)):
        raise TypeError(
            "aggr must make an aggregation for each layer, such as GenAgg itself or lambda: GenAgg('mlp'), "
            f"got {aggr if isinstance(aggr, str) else f'a {type(aggr).__name__}'!r}"
        )
    known: list[Any] = [m for m in model.modules() if type(m) in OURS or type(m) in OURS.values()]
    layers = [m for m in known if aggr is not None or isinstance(m.aggr_module, GenAgg)]
    if not layers:
        raise ValueError(
            "there is nothing to swap: "
            + (
                f"none of the {len(known)} layers has a GenAgg as its aggregation; aggr=GenAgg gives each its own"
                if known
                else f"{type(model).__name__} has no GraphConv, SAGEConv or GINConv of torch_geometric.nn"
            )
        )
    # All that can fail comes first: a model is swapped as a whole, or not at all.
    fresh = [None if aggr is None else _fresh(aggr, layer) for layer in layers]
    for layer, agg in zip(layers, fresh, strict=True):
        _fuse(layer)
        if agg is not None:
            layer.aggr, layer.aggr_module, layer.fuse = str(agg), agg, False
    return model


def _fresh(aggr: Callable[[], GenAgg], layer: Any) -> GenAgg:
    """A new aggregation, of the type, on the device and in the mode of the layer."""
    features = getattr(layer, "in_channels", 1)
    features = features if isinstance(features, int) else features[0]
    old = layer.aggr_module
    if isinstance(old, MultiAggregation) and old.get_out_channels(features) != features:
        raise ValueError(f"one GenAgg cannot replace {old}: the weights of {layer} are made for all of them together")
    agg = aggr()
    if not isinstance(agg, GenAgg):
        raise TypeError(f"aggr must make a GenAgg, but gave a {type(agg).__name__}")
    for like in [*layer.parameters(), *layer.buffers()]:
        if like.is_floating_point():
            agg.to(like.device, like.dtype)
            break
    agg.train(layer.training)
    return agg


def _fuse(layer: Any) -> None:
    """Only the class differs: fused layers hold nothing that PyG's do not hold."""
    if isinstance(layer, Fused):
        return
    # PyG's setters of `explain` and `decomposed_layers` leave the `propagate` of PyG's class on the layer itself.
    written = getattr(layer.__dict__.get("propagate"), "__func__", None)
    if written is not None and written in (type(layer)._orig_propagate, type(layer)._jinja_propagate):
        del layer.propagate
    layer.__class__ = OURS[type(layer)]


def unfuse(layer: nn.Module) -> None:
    """Makes a layer of `fmean.nn` PyG's own again, in place; any other is left as it is."""
    if type(layer) in THEIRS:
        layer.__class__ = THEIRS[type(layer)]
