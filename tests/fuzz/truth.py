"""The formula in float64, for one size of set at a time, straight from the definition of each f.

Shares nothing with the library's kernels: no scatter, no scaling of an f's own. Sums that float64 cannot hold are taken
in logs. Conventions at points without a derivative are the library's: f⁻¹ of an empty set is 0, an element 0 of |x|ᵖ
has gradient 0, a 0 among the elements of a product or harmonic mean makes it 0 with gradient 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fmean.functions import (
    Exp,
    Identity,
    InvertibleNN,
    LogAbs,
    Magnitude,
    Mixture,
    MLPAutoencoder,
    Power,
    SinhLinear,
    SinhLog,
)

__all__ = ["f_mean"]

LARGEST = 300.0  # sinh(300)² is still a float64


def f_mean(v: Tensor, f, alpha: Tensor, beta: Tensor, index: Tensor, size: int, weight: Tensor | None) -> Tensor:
    """``[N, ...]`` → ``[size, ...]``, everything in float64; `weight` in the shape of v."""
    rows, members = [], []
    sizes = torch.bincount(index, minlength=size)
    order = index.argsort(stable=True)
    for n in sizes.unique().tolist():
        which = (sizes == n).nonzero().flatten()
        members.append(which)
        if n == 0:
            rows.append(v.new_zeros(len(which), *v.shape[1:]))
            continue
        elements = order[sizes[index[order]] == n].view(len(which), n)
        rows.append(_sets(v[elements], f, alpha, beta, None if weight is None else weight[elements]))
    if not rows:
        return v.new_zeros(0, *v.shape[1:])
    return torch.cat(rows)[torch.cat(members).argsort()]


def _sets(z: Tensor, f, alpha: Tensor, beta: Tensor, w: Tensor | None) -> Tensor:
    """Sets of n elements each, ``[S, n, ...]`` → ``[S, ...]``."""
    nothing = None
    if w is None:
        n, there = z.new_full((1,) * (z.dim() - 1), z.size(1)), None
    else:
        nothing = (w == 0).all(1, keepdim=True)
        w, z = torch.where(nothing, 1.0, w), torch.where(nothing, 1.0, z)
        n, there = w.sum(1), w > 0
    if (beta != 0).any() or beta.requires_grad:
        mu = (z if w is None else w * z).sum(1) / n
        z = z - (beta * mu).unsqueeze(1)
    y = _mean(f, z, w, there, n, alpha)
    return y if nothing is None else torch.where(nothing.squeeze(1), 0.0, y)


def _mean(f, z: Tensor, w: Tensor | None, there: Tensor | None, n: Tensor, alpha: Tensor) -> Tensor:
    if isinstance(f, Mixture):
        ys = []
        for i, part in enumerate(f.parts):
            a = alpha if alpha.dim() == 0 or f.k == 1 else alpha[..., i % alpha.size(-1)]
            ys.append(_mean(part, z, w, there, n, a))
        return (torch.softmax(f.omega, -1) * torch.stack(ys, -1)).sum(-1)
    if isinstance(f, MLPAutoencoder):
        s = _network(f.encoder, z.unsqueeze(-1))
        s = (s if w is None else w.unsqueeze(-1) * s).sum(1)
        a = alpha if alpha.dim() == 0 or f.k > 1 else alpha.unsqueeze(-1)
        return _network(f.decoder, n.unsqueeze(-1) ** (a - 1) * s).squeeze(-1)
    if isinstance(f, (Exp, Power)) and math.isinf(f.p):
        u = z.abs() if isinstance(f, Power) else z
        u = u if f.p > 0 else -u
        u = (u if there is None else torch.where(there, u, -torch.inf)).amax(1)
        return u if f.p > 0 else -u
    factor = n ** (alpha - 1)
    if isinstance(f, Identity):
        return factor * _sum(z, w)
    if isinstance(f, LogAbs):
        zero = z == 0
        s = factor * _sum(torch.where(zero, 1.0, z).abs().log(), w)
        return torch.where((zero if there is None else zero & there).any(1), 0.0, s.exp())
    if isinstance(f, Exp):
        return (_log_sum(f.p * z, w, there, None) + factor.log()) / f.p
    if isinstance(f, Power):
        zero = z == 0
        here = ~zero if there is None else ~zero & there
        s = _log_sum(f.p * torch.where(zero, 1.0, z).abs().log(), w, here, ~zero)
        y = ((s + factor.log()) / f.p).exp()
        if f.p < 0:
            return torch.where((zero if there is None else zero & there).any(1), 0.0, y)
        return torch.where(here.any(1), y, 0.0)
    if isinstance(f, Magnitude):
        q = f.rho.exp()
        s = _log_sum(q * torch.hypot(z, z.new_full((), f.eps)).log(), w, there, None)
        return ((s + factor.log()) / q).exp()
    if isinstance(f, SinhLinear):
        log = isinstance(f, SinhLog)
        p = f.rho.exp()
        u = p * (torch.hypot(z, z.new_full((), f.eps)).log() if log else z) + f.c
        y = (_asinh_sum(u, w, there, factor) - f.c) / p
        return y.exp() if log else y
    if isinstance(f, InvertibleNN):
        return _invertible(f, z, w, factor)
    raise TypeError(f"no truth is written for {f}")


def _sum(terms: Tensor, w: Tensor | None) -> Tensor:
    return (terms if w is None else w * terms).sum(1)


def _log_sum(u: Tensor, w: Tensor | None, there: Tensor | None, here: Tensor | None) -> Tensor:
    """log Σ w·eᵘ. `there`: what has a weight; `here`: what takes part at all; both None for everything."""
    m = (u if there is None else torch.where(there, u, -torch.inf)).amax(1, keepdim=True).detach()
    m = torch.where(m.isfinite(), m, 0.0)
    terms = (u - m).clamp_max(600).exp()  # what has no weight may be larger than m
    s = _sum(terms if here is None else torch.where(here, terms, 0.0), w)
    return m.squeeze(1) + torch.where(s == 0, 1.0, s).log()


def _asinh_sum(u: Tensor, w: Tensor | None, there: Tensor | None, factor: Tensor) -> Tensor:
    """asinh(factor · Σ w·sinh(u))."""
    m = (u.abs() if there is None else torch.where(there, u.abs(), -torch.inf)).amax(1, keepdim=True).detach()
    u = torch.where(u.abs() > m + LARGEST, u.sign() * (m + LARGEST), u)  # what has no weight may be larger than m
    t = (m - LARGEST).clamp_min(0)
    scaled = t > 0
    terms = torch.where(scaled, ((u - t).exp() - (-u - t).exp()) / 2, torch.where(scaled, 0.0, u).sinh())
    s, t = factor * _sum(terms, w), t.squeeze(1)
    scaled = t > 0
    zero = s == 0
    size = torch.where(zero, 1.0, s).abs()
    log = s.sign() * (t + (size + (size * size + (-2 * t).exp()).sqrt()).log())
    return torch.where(scaled & ~zero, log, torch.where(scaled & ~zero, 0.0, s).asinh())


def _asinh(x: Tensor) -> Tensor:
    far = x.abs() > 1e12  # whose square float64 cannot always hold
    near = torch.where(far, 0.0, x).asinh()
    return torch.where(far, x.sign() * (torch.where(far, x, 1.0).abs().log() + math.log(2)), near)


def _invertible(f: InvertibleNN, z: Tensor, w: Tensor | None, factor: Tensor) -> Tensor:
    s = torch.hypot(z, z.new_full((), f.eps)).log() if f.magnitude else z
    layers = [f.weights[..., i, :].unbind(-1) for i in range(f.layers)]
    for a, b, d, e in layers:
        s = (d.exp() * _asinh(a.exp() * s + b) + e).sinh()
    s = factor * _sum(s + f.t, w) - f.t
    for a, b, d, e in reversed(layers):
        s = (((_asinh(s) - e) / d.exp()).sinh() - b) / a.exp()
    return s.exp() if f.magnitude else s


def _network(net, h: Tensor) -> Tensor:
    """Linear, BatchNorm as in eval mode, Mish, …, Linear; ``[..., i]`` → ``[..., o]``, one for each feature or one."""
    last = len(net.layers) - 1
    for i, layer in enumerate(net.layers):
        h = (h.unsqueeze(-2) * layer[..., :-1]).sum(-1) + layer[..., -1]
        if i < last:
            if len(net.norms):
                norm = net.norms[i]
                mean, var, scale, shift = (
                    t if net.channels == 1 else t.view(net.channels, -1)
                    for t in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
                )
                h = (h - mean) / (var + norm.eps).sqrt() * scale + shift
            h = h * torch.tanh(torch.logaddexp(h, torch.zeros_like(h)))
    return h
