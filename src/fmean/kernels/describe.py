"""Which recipe computes an f, and with which parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..functions import Exp, Identity, InvertibleNN, LogAbs, Mixture, MLPAutoencoder, Power, Sinh, SinhLinear
from ..functions.base import parameter
from ..functions.mlp import MOST_FUSED
from .recipes import MIXTURE

__all__ = ["Described", "describe"]

NAMES = [str(i) for i in range(MOST_FUSED)]  # of the parameters in a ParameterList
SYMBOLIC = (Identity, LogAbs, Power, Exp)


class Described(NamedTuple):
    recipe: str
    parameters: list[Tensor]
    """What the recipe calls p, in this order, without α."""
    alphas: int
    channels: int
    """1, or how many features hold parameters of their own."""


def describe(f: Any, alpha: Any) -> Described | None:
    """The recipe for f, or None where there is none. A subclass may compute something else: it has none."""
    kind, name = type(f), getattr(f, "recipe", None)
    if kind is Mixture:
        return _mixture(f)
    if name is None:
        return None
    if kind is Sinh:
        one, two, three = f._modules["parts"]._modules.values()
        parameters = [parameter(one, "rho"), parameter(one, "c"), parameter(two, "rho")]
        parameters += [parameter(three, "rho"), parameter(three, "c"), parameter(f, "omega")]
        return Described(name, parameters, 3, f.channels)
    if kind is SinhLinear:
        return Described(name, [parameter(f, "rho"), parameter(f, "c")], 1, f.channels)
    if kind is MLPAutoencoder:
        return _mlp(f, name, alpha)
    if kind is InvertibleNN:
        return Described(name, [parameter(f, "weights"), parameter(f, "t")], 1, f.channels)
    if kind in SYMBOLIC:  # nothing of f is held per feature, but α may be
        return Described(name, [], 1, alpha.size(0) if isinstance(alpha, Tensor) and alpha.dim() else 1)
    return None


def _mixture(f: Mixture) -> Described | None:
    """Of invertible networks: other mixtures take the plain path."""
    if not all(type(part) is InvertibleNN and part.channels == f.channels for part in f.parts):
        return None
    found = [describe(part, None) for part in f.parts]
    name = MIXTURE + " + ".join(each.recipe for each in found if each is not None)
    parameters = [p for each in found if each is not None for p in each.parameters]
    return Described(name, [*parameters, f.omega], f.k, f.channels)


def _mlp(f: MLPAutoencoder, name: str, alpha: Any) -> Described | None:
    held = f.channels > 1
    if f.batch_norm and (f.training or held):
        return None  # f depends on the whole batch; nor is BatchNorm folded in for each feature
    alphas = alpha.size(-1) if isinstance(alpha, Tensor) and alpha.dim() > held else 1
    if alphas not in (1, f.k) or (held and f.k > 1 and isinstance(alpha, Tensor) and alpha.dim() == 1):
        return None  # no α of this f, or [k] for all features
    parameters = [*_layers(f._modules["encoder"]), *_layers(f._modules["decoder"])]
    return Described(name + " " + str(alphas), parameters, alphas, f.channels)


def _layers(network: Any) -> list[Tensor]:
    """(W b) of each layer, with a BatchNorm behind it folded in: γ·(W·x + b − m)/√(var + ε) + δ."""
    modules = network._modules
    layers = _listed(modules["layers"])
    if not network.batch_norm:
        return layers
    norms = modules["norms"]
    for i, norm in enumerate(cast(Iterable[nn.BatchNorm1d], norms)):
        factor = norm.weight * torch.rsqrt(cast(Tensor, norm.running_var) + norm.eps)
        weight, bias = layers[i][:, :-1], layers[i][:, -1]
        bias = (bias - cast(Tensor, norm.running_mean)) * factor + norm.bias
        layers[i] = torch.cat([weight * factor.unsqueeze(1), bias.unsqueeze(1)], 1)
    return layers


def _listed(parameters: nn.ParameterList) -> list[Tensor]:
    """What a ParameterList holds, in order, past its own slow way to it where that is possible: see `parameter`."""
    names = NAMES[: len(parameters)]
    try:
        return [cast(Tensor, parameters._parameters[name]) for name in names]
    except KeyError:
        return [parameter(parameters, name) for name in names]
