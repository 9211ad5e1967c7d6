"""Which recipe computes an f, and with which parameters."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..functions import Exp, Identity, InvertibleNN, LogAbs, MLPAutoencoder, Power, Sinh

__all__ = ["Described", "describe"]

SYMBOLIC = (Identity, LogAbs, Power, Exp)


class Described(NamedTuple):
    recipe: str
    parameters: list[Tensor]
    """What the recipe calls p, in this order, without α."""
    alphas: int
    learnable: bool
    """Whether f has something to learn; symbolic functions have not, and are summed in float64."""


# Past Module.__getattr__: this is on the way of every call, and takes as long as a kernel.
def describe(f: Any, alpha: Any) -> Described | None:
    """The recipe for f, or None where there is none. A subclass may compute something else: it has none."""
    kind, name = type(f), getattr(f, "recipe", None)
    if name is None or f.channels != 1:
        return None
    if kind is Sinh:
        one, two, three = (part._parameters for part in f._modules["parts"]._modules.values())
        parameters = [one["rho"], one["c"], two["rho"], three["rho"], three["c"], f._parameters["omega"]]
        return Described(name, parameters, 3, True)
    if kind is MLPAutoencoder:
        return _mlp(f, name, alpha)
    if kind is InvertibleNN:
        return Described(name, [f._parameters["weights"], f._parameters["t"]], 1, True)
    return Described(name, [], 1, False) if kind in SYMBOLIC else None


def _mlp(f: MLPAutoencoder, name: str, alpha: Any) -> Described | None:
    if f.batch_norm and f.training:
        return None  # f depends on the whole batch
    alphas = alpha.numel() if isinstance(alpha, Tensor) else 1
    parameters = [*_layers(f._modules["encoder"]), *_layers(f._modules["decoder"])]
    return Described(name + " " + str(alphas), parameters, alphas, True)


def _layers(network: Any) -> list[Tensor]:
    """W and b of each layer, with a BatchNorm behind it folded in: γ·(W·x + b − m)/√(var + ε) + δ."""
    modules = network._modules
    weights, biases = modules["weights"]._parameters.values(), modules["biases"]._parameters.values()
    norms = modules["norms"]
    if not network.batch_norm:
        return [tensor for pair in zip(weights, biases, strict=True) for tensor in pair]
    found: list[Tensor] = []
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        if i < len(norms):
            norm = cast(nn.BatchNorm1d, norms[i])
            factor = norm.weight * torch.rsqrt(cast(Tensor, norm.running_var) + norm.eps)
            weight, bias = weight * factor.unsqueeze(1), (bias - norm.running_mean) * factor + norm.bias
        found += [weight, bias]
    return found
