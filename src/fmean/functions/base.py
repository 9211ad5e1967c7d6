"""What every f has: `forward`, `inverse`, and a way to keep its sum finite."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ScalarFunction", "expand_parameter", "parameter", "show", "wide"]


class ScalarFunction(nn.Module):
    r"""An invertible function f: ℝ → ℝᵏ, applied to every element of a tensor.

    A scalar f (`k = 1`) keeps the shape of its input; one of `k > 1` channels adds a last dimension
    of size `k`, which `inverse` takes away again:

    - `forward(x)`: ``[...]`` → ``[...]`` (k = 1) or ``[..., k]``
    - `inverse(s)`: the way back.

    A subclass needs no more than these two. One whose values overflow, such as eˣ, also says how to take
    its sum in a scaled form that does not. With m the maximum of `bound(x)` over a set (None without a bound),

    - `scaled(x, m)` is f(x) divided by a scale that m fixes,
    - `scaled_inverse(s, m)` is f⁻¹ of s times that scale,

    so that `f.scaled_inverse(Σ f.scaled(x, m), m)` equals `f.inverse(Σ f(x))` in exact arithmetic,
    whatever m is. Hence no gradient has to flow through m.

    Example:
        >>> class Cube(ScalarFunction):
        ...     def forward(self, x):
        ...         return x**3
        ...
        ...     def inverse(self, s):
        ...         return s.sign() * s.abs() ** (1 / 3)
        >>> f = Cube()
        >>> f.inverse(f(torch.tensor([-2.0, 3.0])))
        tensor([-2.,  3.])
    """

    k: int = 1
    """How many channels f has."""

    channels: int = 1
    """How many features hold parameters of their own; 1: all features share them."""

    alphas: int = 1
    """How many α go with this f: one, or one for each of its k channels."""

    exact: bool = True
    """Whether f⁻¹(f(x)) is x, or |x|, by construction."""

    homogeneous: bool = False
    """Whether f(c·x) = f(c)·f(x) up to sign, so that scaling commutes with the centring by β·μ."""

    translates: bool = False
    """Whether f⁻¹(Σ f(x − c)) = f⁻¹(Σ f(x)) − c: the centring can follow, where it costs no digits of x."""

    reduction: Literal["sum", "max"] = "sum"
    """`"max"` marks a limit p → ±∞, in which the largest term outgrows the sum of the others and n."""

    recipe: str | None = None
    """The name and numbers by which fused kernels know this f; None: they don't."""

    @property
    def formula(self) -> str:
        """f(x) for a person to read; `;` between channels."""
        return "f(x)"

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def inverse(self, s: Tensor) -> Tensor: ...

    def bound(self, x: Tensor) -> Tensor | None:
        """The number whose maximum over a set scales the sum, in f's shape; None: no scaling."""
        return None

    def scaled(self, x: Tensor, m: Any) -> Tensor:
        return self(x)  # type: ignore[no-any-return]

    def scaled_inverse(self, s: Tensor, m: Any) -> Tensor:
        return self.inverse(s)

    def times(self, a: Tensor, b: Tensor) -> Tensor:
        """f⁻¹(f(a)·f(b)), the product that f carries over to its domain."""
        return self.inverse(self(a) * self(b))

    def feature(self, i: int | list[int]) -> Self:
        """A copy with the parameters of one feature, or of several; with `channels`, all tensors have them first."""
        one = copy.deepcopy(self)
        count = 1 if isinstance(i, int) else len(i)
        chosen = i if isinstance(i, int) or count > 1 else i[0]  # one feature has no dimension for features
        for module in one.modules() if self.channels > 1 else ():
            if "channels" in vars(module):
                module.channels = count  # type: ignore[assignment]
            norm = isinstance(module, nn.BatchNorm1d)  # its tensors are flat: [channels · size]
            for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
                if tensor.dim():
                    rows = tensor.data.view(self.channels, -1) if norm else tensor.data
                    tensor.data = rows[chosen].flatten() if norm else rows[chosen].clone()
            if norm:
                module.num_features = module.num_features // self.channels * count  # type: ignore[operator, assignment]
        return one

    def reset_parameters(self) -> None:
        """Puts all learnable parameters back to a fresh start."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"


def expand_parameter(value: Tensor, channels: int) -> Tensor:
    """One copy of `value` for each feature, ``[channels, ...]``, or `value` itself where all share it."""
    return value if channels == 1 else value.expand(channels, *value.shape).clone()


def parameter(module: nn.Module, name: str) -> Tensor:
    """module.name, past Module.__getattr__ where that is possible: on the way of every call it adds up.

    It is not where the parameter is none of the module's own, as in the replicas of DataParallel, or parametrised.
    """
    found = module._parameters.get(name)
    return getattr(module, name) if found is None else found


def wide(x: Tensor) -> torch.dtype:
    """The type that sums of x are taken in: float64 for float32, where there is one."""
    return torch.float64 if x.dtype == torch.float32 and x.device.type != "mps" else x.dtype


def show(value: Tensor) -> str:
    """A parameter in a few characters, for `repr`."""
    if value.is_meta:
        return "?"
    if value.numel() > 4:
        return f"{value.mean().item():.3g} on average"
    return (
        f"{value.item():.3g}"
        if value.dim() == 0
        else "[" + ", ".join(f"{v:.3g}" for v in value.flatten().tolist()) + "]"
    )
