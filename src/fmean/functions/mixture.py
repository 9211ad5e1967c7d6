from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .base import ScalarFunction, expand_parameter, show

__all__ = ["Mixture"]


class Mixture(ScalarFunction):
    r"""f(x) = (f₁(x), …, f_k(x)),  f⁻¹(s) = Σ wᵢ·fᵢ⁻¹(sᵢ),  w = softmax(ω).

    Every channel has an α of its own, so this aggregation is the weighted mean of k f-means, and
    f⁻¹(f(x)) is a weighted mean of x and |x|, exactly.

    Arguments:
        parts: The scalar functions f₁ … f_k.
        channels: 1, or the number of features with an ω of their own.

    Example:
        >>> from fmean.functions import Identity, Power
        >>> f = Mixture([Identity(), Power(2)])
        >>> f(torch.tensor([-3.0, 4.0]))
        tensor([[-3.,  9.],
                [ 4., 16.]])
        >>> f.inverse(f(torch.tensor([-3.0, 4.0]))).detach()  # half x, half |x|
        tensor([0., 4.])
    """

    def __init__(self, parts: Sequence[ScalarFunction], channels: int = 1) -> None:
        super().__init__()
        for i, part in enumerate(parts):
            if part.k != 1 or part.reduction != "sum":
                kind = f"{part.k} channels" if part.k != 1 else "a limit p → ±∞"
                raise ValueError(
                    f"parts must be scalar functions with a finite sum, but parts[{i}] = {part} has {kind}"
                )
        self.parts = nn.ModuleList(parts)
        self.k = self.alphas = len(parts)
        self.channels = channels
        self.exact = all(part.exact for part in parts)
        self.omega = nn.Parameter(expand_parameter(torch.zeros(self.k), channels))

    @property
    def w(self) -> Tensor:
        return self.omega.softmax(-1)

    def channel(self, i: int) -> ScalarFunction:
        """fᵢ alone."""
        return self.parts[i]  # type: ignore[return-value]

    @property
    def formula(self) -> str:
        return "; ".join(part.formula for part in self.parts)  # type: ignore[misc]

    def extra_repr(self) -> str:
        return ", ".join(map(str, self.parts)) + f", w={show(self.w)}"

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.omega)
        for part in self.parts:
            part.reset_parameters()  # type: ignore[operator]

    # A mixture of one is scalar, and has no dimension for channels.
    def _stacked(self, channels: list[Tensor]) -> Tensor:
        return channels[0] if self.k == 1 else torch.stack(channels, -1)

    def _channels(self, s: Tensor) -> tuple[Tensor, ...]:
        return (s,) if self.k == 1 else s.unbind(-1)

    def _mean(self, y: list[Tensor]) -> Tensor:
        return (self.w * torch.stack(y, -1)).sum(-1)

    def forward(self, x: Tensor) -> Tensor:
        return self._stacked([part(x) for part in self.parts])

    def inverse(self, s: Tensor) -> Tensor:
        return self._mean([part.inverse(t) for part, t in zip(self.parts, self._channels(s), strict=True)])  # type: ignore[operator]

    def bound(self, x: Tensor) -> Tensor:
        bounds = [part.bound(x) for part in self.parts]  # type: ignore[operator]
        return self._stacked([torch.zeros_like(x) if b is None else b for b in bounds])

    def scaled(self, x: Tensor, m: Tensor) -> Tensor:
        channels = zip(self.parts, self._channels(m), strict=True)
        return self._stacked([part.scaled(x, mi) for part, mi in channels])  # type: ignore[operator]

    def scaled_inverse(self, s: Tensor, m: Tensor) -> Tensor:
        channels = zip(self.parts, self._channels(s), self._channels(m), strict=True)
        return self._mean([part.scaled_inverse(t, mi) for part, t, mi in channels])  # type: ignore[operator]
