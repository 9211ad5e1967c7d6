"""A case, computed by the library and by the truth: results and gradients under the same names."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fmean import augmented_f_mean
from fmean.kernels import plain

from .cases import Case
from .noise import Rounded
from .truth import f_mean

__all__ = ["Truth", "comparable", "held", "run", "spoilt_of", "truth_of"]


@dataclass
class Truth:
    values: dict[str, Tensor]
    scales: dict[str, Tensor]
    """What an error is relative to: |y|; the largest gradient in the set; the largest of a parameter's gradients."""


def _leaves(case: Case, agg, x, weight, edge_weight) -> dict[str, Tensor]:
    """What gradients are taken of, by name."""
    wanted = {}
    if case.gradients in ("all", "x"):
        wanted |= {"x": x, "weight": weight, "edge_weight": edge_weight}
    if case.gradients in ("all", "parameters"):
        wanted |= {name: parameter for name, parameter in agg.named_parameters() if parameter.requires_grad}
    return {name: leaf for name, leaf in wanted.items() if leaf is not None}


def run(case: Case, g: Tensor, device: str) -> dict[str, Tensor]:
    """The library's results: y, and the gradient of each leaf under its name."""

    def there(t):
        return None if t is None else t.detach().to(device)

    agg, x, weight, edge_weight = (
        copy.deepcopy(case.agg).to(device),
        *map(there, (case.x, case.weight, case.edge_weight)),
    )
    leaves = _leaves(case, agg, x, weight, edge_weight)
    agg.requires_grad_(False)
    for leaf in leaves.values():
        leaf.requires_grad_()
    sets = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in case.sets.items()}
    low = torch.autocast(device, torch.bfloat16) if case.autocast else nullcontext()
    with torch.set_grad_enabled(case.gradients != "none"), low:
        if case.source is not None:
            y = agg.neighbours(x, there(case.source), sets["index"], sets["dim_size"], edge_weight)
        elif weight is not None:
            y = augmented_f_mean(x, agg.f, agg.alpha, agg.beta, dim=case.dim, weight=weight, **sets)
        else:
            y = agg(x, dim=case.dim, **sets)
    return _with_gradients(y, leaves, g.to(device))


def _with_gradients(y: Tensor, leaves: dict[str, Tensor], g: Tensor | None) -> dict[str, Tensor]:
    out = {"y": y.detach().cpu()}
    if leaves and g is not None:
        gradients = [torch.zeros_like(leaf) for leaf in leaves.values()]
        if y.requires_grad:
            gradients = torch.autograd.grad(
                y, list(leaves.values()), g.to(y.dtype), allow_unused=True, materialize_grads=True
            )
        out |= {name: gradient.cpu() for name, gradient in zip(leaves, gradients, strict=True)}
    return out


def truth_of(case: Case, g: Tensor | None, spoilt: Tensor, rounded: Rounded | None = None) -> Truth:
    agg = copy.deepcopy(case.agg).double()
    x, weight, edge_weight = (
        None if t is None else t.detach().double() for t in (case.x, case.weight, case.edge_weight)
    )
    x = torch.where(x.isfinite(), x, 1.0)
    leaves = _leaves(case, agg, x, weight, edge_weight)
    agg.requires_grad_(False)
    for leaf in leaves.values():
        leaf.requires_grad_()
    if case.train:  # f then depends on the batch, and gradients carry the inversion objective: the library's own word
        with plain():
            y = augmented_f_mean(x, agg.f, agg.alpha, agg.beta, dim=case.dim, weight=weight, **case.sets)
        inner = {}
    else:
        v = x.movedim(case.dim, 0)
        if case.source is not None:
            v = v[case.source.long()]
            if edge_weight is not None:  # a message may have the type of x, or be as exact as the sums
                v = edge_weight.unsqueeze(-1) * v
                if rounded is not None:
                    kind = torch.finfo(case.x.dtype)
                    least = rounded.round(torch.ones_like(v), 1.0) - 1  # at random within ± 1
                    v = rounded.round(v, kind.eps) + kind.smallest_normal * kind.eps * least
        w = None if weight is None else _expanded(case, weight)
        inner = {"/elements": v, "/weights": w} if "x" in leaves else {}
        v = torch.where(spoilt[case.index], 1.0, v)
        y = f_mean(v, agg.f, agg.alpha, agg.beta, case.index, case.size, w).movedim(0, case.dim)
    inner = {name: t for name, t in inner.items() if t is not None and t.requires_grad}
    values = _with_gradients(y, leaves | inner, g)
    scales = {name: value.abs().amax() if value.numel() else value for name, value in values.items()}
    scales["y"] = values["y"].abs()
    if case.train:  # a bias before BatchNorm has gradient 0, as the difference of large ones
        largest = max([scales[name] for name, _ in agg.named_parameters() if name in scales], default=torch.zeros(()))
        scales |= {name: largest for name, _ in agg.named_parameters() if name in scales}
    if "x" in values:
        _set_scales(case, values, scales)
    return Truth(values, scales)


def _set_scales(case: Case, values: dict[str, Tensor], scales: dict[str, Tensor]) -> None:
    """Errors of the gradients of an element are relative to the largest in its set."""

    def largest(gradient: Tensor) -> Tensor:
        sizes = gradient.new_zeros(case.size, *gradient.shape[1:])
        return sizes.index_reduce(0, case.index, gradient.abs(), "amax")[case.index]

    elements = largest(values.get("/elements", values["x"].movedim(case.dim, 0)))
    if case.source is not None:
        factor = 1.0 if case.edge_weight is None else case.edge_weight.double().abs().unsqueeze(-1)
        scales["x"] = torch.zeros_like(values["x"]).index_add(0, case.source.long(), factor * elements)
        if case.edge_weight is not None:
            x = torch.where(case.x.isfinite(), case.x, 1.0).double()
            scales["edge_weight"] = (x[case.source.long()].abs() * elements).sum(-1)
    else:
        scales["x"] = elements.movedim(0, case.dim)
    if "/weights" in values:
        scales["weight"] = _reduced(case, largest(values["/weights"]), torch.sum)


def _expanded(case: Case, weight: Tensor) -> Tensor:
    """Weights in the shape of the elements, ``[N, ...]``."""
    if weight.shape == (case.x.size(case.dim),) and case.x.dim() > 1:
        weight = weight.view(-1, *[1] * (case.x.dim() - 1))
        return weight.expand(case.x.movedim(case.dim, 0).shape)
    return weight.expand(case.x.shape).movedim(case.dim, 0)


def _reduced(case: Case, t: Tensor, reduce) -> Tensor:
    """The way back: ``[N, ...]`` in the shape of the weights."""
    assert case.weight is not None
    if case.weight.shape == (case.x.size(case.dim),) and case.x.dim() > 1:
        return reduce(t.flatten(1), 1)
    t = t.movedim(0, case.dim)
    for i, size in enumerate(case.weight.shape):
        if size != t.size(i):
            t = reduce(t, i, keepdim=True)
    return t


def spoilt_of(case: Case) -> tuple[Tensor, Tensor]:
    """Which results, ``[size, ...]``, may be non-finite, as an element is; and, in y's shape, which must be NaN."""
    v = case.x.movedim(case.dim, 0)
    if case.source is not None:
        v = v[case.source.long()]
        v = v if case.edge_weight is None else case.edge_weight.unsqueeze(-1) * v
    there = True if case.weight is None else _expanded(case, case.weight) != 0

    def sets(bad):
        out = torch.zeros(case.size, *v.shape[1:])
        return out.index_add(0, case.index, (bad & there).float()) > 0

    return sets(~v.isfinite()), sets(v.isnan()).movedim(0, case.dim)


def held(case: Case, y: Tensor) -> Tensor:
    """Which results, ``[size, ...]``, the type can hold in full precision, with room for their gradients on the way."""
    own, sums = torch.finfo(case.x.dtype), torch.finfo(torch.promote_types(case.x.dtype, torch.float32))
    size = y.movedim(case.dim, 0).abs()
    return (size < own.max / (4 if own.bits < sums.bits else 1e4)) & ((size == 0) | (size > 4 * sums.smallest_normal))


def comparable(case: Case, spoilt: Tensor) -> dict[str, Tensor]:
    """Which entries of each output can be compared: those that no non-finite element reaches."""
    everything = torch.ones((), dtype=torch.bool)
    elements = spoilt[case.index]
    valid: dict[str, Tensor] = {}
    if case.source is not None:
        reached = torch.zeros(case.x.shape).index_add(0, case.source.long(), elements.float()) > 0
        valid |= {"x": ~reached & case.x.isfinite(), "edge_weight": ~elements.any(-1)}
    else:
        valid["x"] = ~elements.movedim(0, case.dim)
    if case.weight is not None:
        bad = elements | ~case.x.movedim(case.dim, 0).isfinite()
        valid["weight"] = ~(_reduced(case, bad.float(), torch.sum) > 0)
    features = case.agg.channels
    clean = ~spoilt.reshape(-1, spoilt.shape[-1]).any(0) if spoilt.dim() > 1 and features > 1 else None
    for name, parameter in case.agg.named_parameters():
        if not spoilt.any():
            valid[name] = everything
        elif clean is None or parameter.dim() == 0 or parameter.size(0) % features or ".norms." in name:
            valid[name] = ~everything
        else:
            valid[name] = clean.view(-1, *[1] * (parameter.dim() - 1)) & (parameter.size(0) == features)
    return valid
