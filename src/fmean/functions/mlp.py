from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import ScalarFunction

__all__ = ["MLPAutoencoder"]


MOST_FUSED = 160  # parameters, of f and f⁻¹ together, for which fused kernels hold gradients in registers


class MLPAutoencoder(ScalarFunction):
    r"""f = MLP₁,  f⁻¹ ≈ MLP₂: two networks, as in the paper, with Mish between the layers.

    f⁻¹ is an inverse only as far as training makes it one. In training mode every aggregation with this f
    therefore carries the paper's inversion objective (see `inversion`), which pulls

        L_inv = E[(|f⁻¹(f(x))| − |x|)²]

    down along with the user's own loss.

    Arguments:
        layer_sizes: Sizes from the input (1) to f's channels; f⁻¹ has them in reverse.
        batch_norm: Normalises hidden activations over the batch, as the paper's benchmark models do.
            In training mode f then depends on the batch.
        inversion: Weight of the inversion objective; 0 switches it off.
        channels: 1, or the number of features with networks of their own.

    Example:
        >>> f = MLPAutoencoder()
        >>> f(torch.zeros(5)).shape, f.inverse(torch.zeros(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    exact = False

    def __init__(
        self,
        layer_sizes: Sequence[int] = (1, 2, 2, 4),
        batch_norm: bool = False,
        inversion: float = 0.1,
        channels: int = 1,
    ) -> None:
        super().__init__()
        sizes = [int(size) for size in layer_sizes]
        if len(sizes) < 2 or sizes[0] != 1 or min(sizes) < 1:
            raise ValueError(f"layer_sizes must start at 1 and have two or more sizes ≥ 1, got {list(layer_sizes)}")
        self.layer_sizes = tuple(sizes)
        self.batch_norm = batch_norm
        self.inversion = inversion
        self.channels = channels
        self.k = sizes[-1]
        if sum(2 * m * k + m + k for m, k in pairwise(sizes)) <= MOST_FUSED:
            self.recipe = f"mlp {' '.join(map(str, sizes))}"
        self.encoder = _MLP(sizes, batch_norm, channels)
        self.decoder = _MLP(sizes[::-1], batch_norm, channels)
        self.register_buffer("last_inversion_loss", torch.full((), torch.nan), persistent=False)

    last_inversion_loss: Tensor
    """L_inv as the last training step saw it, to be logged; NaN before the first."""

    def reset_parameters(self) -> None:
        self.encoder.reset_parameters()
        self.decoder.reset_parameters()

    @property
    def formula(self) -> str:
        return "MLP[" + ", ".join(map(str, self.layer_sizes)) + "](x)"

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.encoder(x.unsqueeze(-1))
        return s.squeeze(-1) if self.k == 1 else s

    def inverse(self, s: Tensor) -> Tensor:
        y: Tensor = self.decoder(s.unsqueeze(-1) if self.k == 1 else s)
        return y.squeeze(-1)

    def inversion_loss(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """E[(|f⁻¹(f(x))| − |x|)²] over the elements of x, ``[]``, or of each feature, ``[channels]``."""
        x_hat: Tensor = self.decoder(self.encoder(x.unsqueeze(-1), track=False), track=False).squeeze(-1)
        loss = (x_hat.abs() - x.abs()).square()
        if weight is not None:
            loss = loss * (weight / weight.mean().clamp_min(torch.finfo(x.dtype).tiny))
        return loss.mean() if self.channels == 1 else loss.flatten(0, -2).mean(0)

    def extra_repr(self) -> str:
        return f"layer_sizes={list(self.layer_sizes)}, batch_norm={self.batch_norm}, inversion={self.inversion:g}"


class _MLP(nn.Module):
    """Linear, (BatchNorm,) Mish, …, Linear over the last dimension; with channels > 1 one such network for
    each entry of the dimension before it.

    A layer is one tensor, (W b), ``[o, i + 1]``: half as many for autograd and optimizers to look after.
    """

    def __init__(self, sizes: Sequence[int], batch_norm: bool, channels: int) -> None:
        super().__init__()
        lead = () if channels == 1 else (channels,)
        pairs = list(pairwise(sizes))
        self.layers = nn.ParameterList([nn.Parameter(torch.empty(*lead, o, i + 1)) for i, o in pairs])
        self.norms = nn.ModuleList([nn.BatchNorm1d(channels * o) for _, o in pairs[:-1]] if batch_norm else [])
        self.channels, self.batch_norm = channels, batch_norm
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for layer in self.layers:
            weight, bias = layer[..., :-1], layer[..., -1]
            weight.normal_(0.0, (2 / weight.size(-1)) ** 0.5)  # Kaiming normal, for each feature's network
            bias.uniform_(-(weight.size(-1) ** -0.5), weight.size(-1) ** -0.5)
        for norm in self.norms:
            norm.reset_parameters()  # type: ignore[operator]

    def forward(self, h: Tensor, track: bool = True) -> Tensor:
        for i, parameters in enumerate(self.layers):
            # Parameters follow the data's type, so that one f serves float32 and float64 alike.
            layer = parameters.to(h.dtype)
            weight, bias = layer[..., :-1], layer[..., -1]
            if self.channels == 1:
                h = F.linear(h, weight, bias)
            else:
                h = torch.einsum("...fi,foi->...fo", h, weight) + bias
            if i < len(self.layers) - 1:
                h = F.mish(self._normalise(h, i, track) if self.norms else h)
        return h

    def _normalise(self, h: Tensor, i: int, track: bool) -> Tensor:
        norm = cast(nn.BatchNorm1d, self.norms[i])
        if h.numel() == 0:
            return h
        flat = h.reshape(-1, norm.num_features)
        if not norm.training:  # in the type of the data: float16 parameters need not hold what is on the way
            m, var = (cast(Tensor, t).to(h.dtype) for t in (norm.running_mean, norm.running_var))
            flat = F.batch_norm(flat, m, var, norm.weight.to(h.dtype), norm.bias.to(h.dtype), False, 0.0, norm.eps)
            return flat.reshape(h.shape)
        flat = flat.to(norm.weight.dtype)
        if not track:
            flat = F.batch_norm(flat, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
        else:
            flat = norm(flat)
        return flat.reshape(h.shape).to(h.dtype)
