from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .base import ScalarFunction, expand_parameter

__all__ = ["InvertibleNN"]


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
        self.weights = nn.Parameter(expand_parameter(torch.empty(layers, 4), channels))  # a, b, d, ε of each layer
        self.t = nn.Parameter(expand_parameter(torch.empty(()), channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weights, 0.0, 0.2)
        nn.init.zeros_(self.t)

    @property
    def formula(self) -> str:
        return f"INN({'log|x|' if self.magnitude else 'x'})"

    def forward(self, x: Tensor) -> Tensor:
        if self.magnitude:
            x = torch.hypot(x, x.new_full((), self.eps)).log()
        for layer in self.weights.unbind(-2):
            a, b, d, e = layer.unbind(-1)
            x = torch.sinh(d.exp() * torch.asinh(a.exp() * x + b) + e)
        return x + self.t

    def inverse(self, s: Tensor) -> Tensor:
        s = s - self.t
        for layer in reversed(self.weights.unbind(-2)):
            a, b, d, e = layer.unbind(-1)
            s = (torch.sinh((torch.asinh(s) - e) / d.exp()) - b) / a.exp()
        return s.clamp_max(math.log(torch.finfo(s.dtype).max) - 1).exp() if self.magnitude else s

    def extra_repr(self) -> str:
        return f"layers={self.layers}, magnitude={self.magnitude}"
