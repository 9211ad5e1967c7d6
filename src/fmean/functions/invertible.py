from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .base import ScalarFunction, expand_parameter, wide

__all__ = ["InvertibleNN"]


def asinh(s: Tensor) -> Tensor:
    """asinh, with a derivative where torch's, 1/√(s² + 1), is 0 since s² overflows."""
    large = s.abs() > 1e9  # from here on log(2·|s|) is as good
    far = torch.where(large, s, 1.0)
    return torch.where(large, far.sign() * (far.abs().log() + math.log(2)), torch.asinh(torch.where(large, 0.0, s)))


class InvertibleNN(ScalarFunction):
    r"""f = t + g_L ∘ … ∘ g_1,  g_l(x) = sinh(δ_l·asinh(e^{a_l}·x + b_l) + ε_l),  δ_l = e^{d_l}.

    Every layer is a smooth increasing map of ℝ onto ℝ with the inverse
    g_l⁻¹(s) = (sinh((asinh(s) − ε_l)/δ_l) − b_l)·e^{−a_l}, so f⁻¹ is exact by construction,
    for any parameters, with gradients. δ bends the tails (|x|^δ), ε and b make them unequal.

    Arguments:
        layers: The number L of layers.
        magnitude: Take f of log|x| rather than of x: f⁻¹(f(x)) is then |x|. Without this f is increasing
            and cannot become an aggregator of magnitudes.
        channels: 1, or the number of features with parameters of their own.
        eps: With `magnitude`, the floor ε in |x| = √(x² + ε²).

    Example:
        >>> f = InvertibleNN()
        >>> x = torch.linspace(-3, 3, 7)
        >>> torch.allclose(f.inverse(f(x)), x, atol=1e-5)
        True
    """

    def __init__(self, layers: int = 4, magnitude: bool = False, channels: int = 1, eps: float = 1e-6) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers must be 1 or more, got {layers}")
        self.layers = layers
        self.magnitude = magnitude
        self.channels = channels
        self.eps = eps
        self.recipe = f"invertible {layers} {int(magnitude)} {eps!r}"
        self.weights = nn.Parameter(expand_parameter(torch.empty(layers, 4), channels))  # a, b, d, ε of each layer
        self.t = nn.Parameter(expand_parameter(torch.empty(()), channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weights, 0.0, 0.2)
        nn.init.zeros_(self.t)

    @property
    def formula(self) -> str:
        return f"INN({'log|x|' if self.magnitude else 'x'})"

    def layer_values(self, x: Tensor) -> Iterator[Tensor]:
        """What each layer gives, one after the other; increasing in x, or in |x|."""
        x = x.to(wide(x))
        if self.magnitude:
            x = torch.hypot(x, x.new_full((), self.eps)).log()
        for layer in self.weights.unbind(-2):
            a, b, d, e = layer.unbind(-1)
            x = torch.sinh(d.exp() * asinh(a.exp() * x + b) + e)
            yield x

    def forward(self, x: Tensor) -> Tensor:
        return self.scaled(x, None).to(x.dtype)

    # In float64: f grows with a power of x.
    def scaled(self, x: Tensor, m: None) -> Tensor:
        *_, last = self.layer_values(x)
        return last + self.t

    def inverse(self, s: Tensor) -> Tensor:
        kind, s = s.dtype, s.to(wide(s)) - self.t
        for layer in reversed(self.weights.unbind(-2)):
            a, b, d, e = layer.unbind(-1)
            s = (torch.sinh((asinh(s) - e) / d.exp()) - b) / a.exp()
        return (s.clamp_max(math.log(torch.finfo(kind).max) - 1).exp() if self.magnitude else s).to(kind)

    def extra_repr(self) -> str:
        return f"layers={self.layers}, magnitude={self.magnitude}"
