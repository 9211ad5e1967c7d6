"""The closed-form learnable f: three channels of sinh, power and sinh ∘ log."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import ScalarFunction, expand_parameter, show, wide
from .mixture import Mixture
from .power import pow_or_zero

__all__ = ["Magnitude", "Sinh", "SinhLinear", "SinhLog"]

# Terms of a sum of sinh(u) are left as they are up to this |u|, and scaled down to it above:
# e²⁰ leaves room to square a sum of 10¹⁰ such terms in float32, as the gradient of asinh does.
LARGEST_U = 20.0


class SinhLinear(ScalarFunction):
    r"""f(x) = sinh(p·x + c),  f⁻¹(s) = (asinh(s) − c)/p,  p = e^ρ.

    Becomes the mean and sum (p → 0, c = 0), log-sum-exp (c ≫ 0), max (p → ∞, c > 0), min (p → ∞, c < 0).
    Where large p·x + c of both signs nearly cancel, gradients are large: clip them in training.

    Arguments:
        channels: 1, or the number of features with ρ and c of their own.
        start: Where c starts; or where that of each feature does.
        rate: Where p starts; or where that of each feature does.

    Example:
        >>> SinhLinear(start=2.0, rate=3.0)  # between mean and max
        SinhLinear(p=..., c=...)
    """

    def __init__(
        self, channels: int = 1, start: float | Sequence[float] = 0.0, rate: float | Sequence[float] = 1.0
    ) -> None:
        super().__init__()
        self.channels = channels
        self.start, self.rate = (_each(value, name, channels) for name, value in (("start", start), ("rate", rate)))
        if not min(self.rate) > 0:
            raise ValueError(f"rate must be above 0, got {rate!r}")
        self.recipe = "sinh_linear"
        self.rho = nn.Parameter(expand_parameter(torch.empty(()), channels))
        self.c = nn.Parameter(expand_parameter(torch.empty(()), channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # A small spread, so that no start lies on a symmetry (c = 0: neither min nor max is nearer).
        for parameter, start in ((self.rho, [math.log(rate) for rate in self.rate]), (self.c, self.start)):
            nn.init.normal_(parameter, 0.0, 0.1)
            with torch.no_grad():
                parameter.add_(parameter.new_tensor(start).view(parameter.shape if len(start) > 1 else ()))

    @property
    def p(self) -> Tensor:
        return self.rho.exp()

    argument = "x"

    @property
    def formula(self) -> str:
        return f"sinh({show(self.p)}·{self.argument} + {show(self.c)})".replace("+ -", "− ")

    def extra_repr(self) -> str:
        return f"p={show(self.p)}, c={show(self.c)}"

    def u(self, x: Tensor) -> Tensor:
        return self.p * x + self.c

    def u_inverse(self, u: Tensor) -> Tensor:
        return (u - self.c) / self.p

    def forward(self, x: Tensor) -> Tensor:
        return torch.sinh(self.u(x))

    def inverse(self, s: Tensor) -> Tensor:
        return self.u_inverse(torch.asinh(s))

    def bound(self, x: Tensor) -> Tensor:
        return self.u(x).abs().clamp_max(torch.finfo(x.dtype).max)

    def scaled(self, x: Tensor, m: Tensor) -> Tensor:
        # sinh(u)·e^(−t), t = max(m − 20, 0): as e^(u−t) − e^(−u−t), except near 0, where those two cancel.
        u, t = self.u(x), (m - LARGEST_U).clamp_min(0)
        near = u.abs() < 1
        return torch.where(
            near, torch.sinh(torch.where(near, u, 0.0)) * torch.exp(-t), (torch.exp(u - t) - torch.exp(-u - t)) / 2
        )

    def scaled_inverse(self, s: Tensor, m: Tensor) -> Tensor:
        # asinh(eᵗ·s) = sign(s)·(t + log(|s| + √(s² + e^(−2t)))); the floor is there for s = 0 alone.
        t = (m - LARGEST_U).clamp_min(0)
        log = torch.log(s.abs() + torch.sqrt(s * s + torch.exp(-2 * t).clamp_min(1e-30)))
        return self.u_inverse(torch.where(t > 0, s.sign() * (t + log), torch.asinh(s)))

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        # In logs: log|sinh u| = |u| + log(1 − e^(−2|u|)) − log 2, and asinh(eᴸ) = L + log 2 for a large L.
        u, v = self.u(a), self.u(b)
        size = torch.stack(torch.broadcast_tensors(u.abs(), v.abs()))  # type: ignore[no-untyped-call]
        log = (size + torch.log(-torch.expm1(-2 * size)) - math.log(2)).sum(0)
        asinh = torch.where(log > LARGEST_U, log + math.log(2), torch.asinh(torch.exp(log.clamp_max(LARGEST_U))))
        return self.u_inverse(u.sign() * v.sign() * asinh)


def _each(value: float | Sequence[float], name: str, channels: int) -> list[float]:
    """One number for all features, or one for each."""
    values = list(value) if isinstance(value, Sequence) else [value]
    if len(values) not in (1, channels):
        raise ValueError(f"{name} must be one number, or one for each of {channels} features, got {len(values)}")
    return values


class SinhLog(SinhLinear):
    r"""f(x) = sinh(p·log|x| + c),  f⁻¹(s) = exp((asinh(s) − c)/p),  p = e^ρ.

    Becomes the product and geometric mean (p → 0, c = 0), harmonic mean and min magnitude (c < 0).
    |x| stands for √(x² + ε²), so that the gradient at 0 is finite.

    Arguments:
        channels: 1, or the number of features with ρ and c of their own.
        start: Where c starts.
        eps: The floor ε.
    """

    argument = "log|x|"

    def __init__(self, channels: int = 1, start: float = -0.5, eps: float = 1e-6) -> None:
        super().__init__(channels, start)
        self.eps = eps

    def u(self, x: Tensor) -> Tensor:
        return super().u(torch.hypot(x, x.new_full((), self.eps)).log())

    def u_inverse(self, u: Tensor) -> Tensor:
        return super().u_inverse(u).clamp_max(math.log(torch.finfo(u.dtype).max) - 1).exp()


class Magnitude(ScalarFunction):
    r"""f(x) = |x|^q,  f⁻¹(s) = s^(1/q),  q = e^ρ.

    Becomes root mean square and euclidean norm (q = 2), standard deviation (β = 1), max magnitude (q → ∞).
    |x| stands for √(x² + ε²), so that the gradient at 0 is finite.

    Arguments:
        channels: 1, or the number of features with a ρ of their own.
        eps: The floor ε.
    """

    def __init__(self, channels: int = 1, eps: float = 1e-6) -> None:
        super().__init__()
        self.channels = channels
        self.eps = eps
        self.rho = nn.Parameter(expand_parameter(torch.empty(()), channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.rho, 0.0, 0.1)

    @property
    def q(self) -> Tensor:
        return self.rho.exp()

    def extra_repr(self) -> str:
        return f"q={show(self.q)}"

    @property
    def formula(self) -> str:
        return f"|x|^{show(self.q)}"

    def magnitude(self, x: Tensor) -> Tensor:
        return torch.hypot(x, x.new_full((), self.eps))

    def forward(self, x: Tensor) -> Tensor:
        return self.magnitude(x) ** self.q

    def inverse(self, s: Tensor) -> Tensor:
        return pow_or_zero(s, 1 / self.q)

    def bound(self, x: Tensor) -> Tensor:
        return self.magnitude(x).clamp_max(torch.finfo(x.dtype).max)

    def scaled(self, x: Tensor, m: Tensor) -> Tensor:
        return (self.magnitude(x) / m.clamp_min(self.eps)) ** self.q

    def scaled_inverse(self, s: Tensor, m: Tensor) -> Tensor:
        # In float64: for a small q the power may be too large for s, and its product with m not.
        return (m.clamp_min(self.eps) * pow_or_zero(s.to(wide(s)), 1 / self.q)).to(s.dtype)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        return self.magnitude(a) * self.magnitude(b)


class Sinh(Mixture):
    r"""f(x) = (sinh(p₁·x + c₁), |x|^q, sinh(p₃·log|x| + c₃)),  f⁻¹(s) = Σ wᵢ·fᵢ⁻¹(sᵢ).

    A dozen readable numbers that cover all 13 standard aggregators, with an exact inverse:
    f⁻¹(f(x)) = w₁·x + (w₂ + w₃)·|x|.

    Arguments:
        channels: 1, or the number of features with parameters of their own.
        eps: The floor ε in |x| = √(x² + ε²).

    Example:
        >>> f = Sinh()
        >>> f(torch.zeros(5)).shape
        torch.Size([5, 3])
    """

    def __init__(self, channels: int = 1, eps: float = 1e-6) -> None:
        super().__init__([SinhLinear(channels), Magnitude(channels, eps), SinhLog(channels, eps=eps)], channels)
        self.eps = eps
        self.recipe = f"sinh {eps!r}"
