"""Checks of what a user hands in, with errors that say what was given and what is allowed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .kernels import Segments, as_int64, extremes

__all__ = [
    "as_parameter",
    "as_weight",
    "check_function",
    "check_inverse",
    "check_output",
    "check_sets",
    "check_x",
    "may_look",
]


def check_x(x: Tensor, dim: int) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"x must have a floating-point type, got {x.dtype}; call x.float() first")
    if x.layout != torch.strided:
        raise TypeError(f"x must be a dense tensor, got layout {x.layout}")
    if not -x.dim() <= dim < x.dim():
        raise ValueError(f"dim={dim} is not a dimension of x with shape {list(x.shape)}")


def check_sets(
    elements: int, device: torch.device, index: Tensor | None, ptr: Tensor | None, dim_size: int | None
) -> tuple[Tensor | None, Tensor | None, int]:
    """`index` and `ptr` in int64, and the number of sets they describe.

    Values are checked on the CPU alone: on a GPU a look at them would make every call wait for the device,
    whose own kernels stop at an index out of range.
    """
    if dim_size is not None and not isinstance(dim_size, (int, torch.SymInt)):
        raise TypeError(f"dim_size must be an integer, got {dim_size!r}")
    if dim_size is not None and dim_size < 0:
        raise ValueError(f"dim_size must be 0 or more, got {dim_size}")
    look = may_look(device)

    if index is None and ptr is None:
        if dim_size not in (None, 1):
            raise ValueError(f"dim_size={dim_size} needs index or ptr: without them all elements form one set")
        return None, None, 1

    if ptr is not None:
        ptr = _check_integers(ptr, "ptr", device)
        size = ptr.numel() - 1
        if size < 0:
            raise ValueError("ptr must have one entry more than there are sets, got none")
        if dim_size not in (None, size):
            raise ValueError(f"dim_size={dim_size} does not fit ptr with {size + 1} entries, which makes {size} sets")
        if look and (ptr[0] != 0 or ptr[-1] != elements or (ptr.diff() < 0).any()):
            raise ValueError(
                f"ptr must rise from 0 to the number of elements, {elements}, got values from {ptr[0]} to {ptr[-1]}"
                + (" that fall in between" if (ptr.diff() < 0).any() else "")
            )
        dim_size = size

    if index is not None:
        index = _check_integers(index, "index", device)
        if index.numel() != elements:
            raise ValueError(
                f"index must have one entry for each of the {elements} elements along dim, got {index.numel()}"
            )
        if dim_size is None:
            size = 0 if not elements else extremes(index)[1] + 1 if look else int(index.max()) + 1
        else:
            size = dim_size
        if look and elements:
            low, high = extremes(index)
            if low < 0 or high >= size:
                raise ValueError(f"index must lie in 0 … {size - 1} (dim_size={size}), got values from {low} to {high}")
        if look and ptr is not None and not torch.equal(Segments.from_ptr(ptr, elements).index, index):  # type: ignore[arg-type]
            raise ValueError("index and ptr describe different sets; give one of them, or a sorted index that fits ptr")
    return index, ptr, size


def may_look(device: torch.device) -> bool:
    """Whether values can be looked at: at no cost, and not in the midst of torch.compile or torch.func."""
    if device.type != "cpu":
        return False
    return not (torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active())


def _check_integers(index: Tensor, name: str, device: torch.device) -> Tensor:
    if not isinstance(index, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(index).__name__}")
    kind = index.dtype
    if kind != torch.int64 and (kind.is_floating_point or kind.is_complex or kind == torch.bool):
        raise TypeError(f"{name} must have an integer type, got {kind}")
    if index.dim() != 1:
        raise ValueError(f"{name} must have one dimension, got shape {list(index.shape)}")
    if index.device != device:
        raise ValueError(f"{name} is on {index.device}, but x is on {device}")
    return as_int64(index)


def as_weight(weight: Tensor, x: Tensor, dim: int) -> Tensor:
    """Weights in the shape of x, or with size 1 where they are the same, with `dim` in front."""
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight must be a torch.Tensor, got {type(weight).__name__}")
    if weight.device != x.device:
        raise ValueError(f"weight is on {weight.device}, but x is on {x.device}")
    if weight.is_complex():
        raise TypeError(f"weight must be real, got {weight.dtype}")
    shape, elements = list(weight.shape), x.size(dim)
    if weight.dim() == 1 and weight.numel() == elements:
        weight = weight.view(elements, *[1] * (x.dim() - 1))
    elif weight.dim() == x.dim() and all(a in (1, b) for a, b in zip(shape, x.shape, strict=True)):
        weight = weight.movedim(dim, 0)
        weight = weight.expand(elements, *weight.shape[1:])
    else:
        raise ValueError(f"weight must have shape [{elements}] or one that expands to {list(x.shape)}, got {shape}")
    if may_look(weight.device) and not (weight >= 0).all():
        raise ValueError(f"weight must be 0 or more, got {weight.min().item():g}")
    return weight


def as_parameter(value: float | Tensor, name: str, features: int, k: int, z: Tensor) -> float | Tensor:
    """α or β, checked to broadcast against ``[..., features]``, or ``[..., features, k]`` with k channels."""
    if not isinstance(value, Tensor):
        return float(value)
    if value.is_complex():
        raise TypeError(f"{name} must be real, got {value.dtype}")
    if value.device != z.device:
        raise ValueError(f"{name} is on {value.device}, but x is on {z.device}")
    allowed: list[list[int]] = [[], [features]] if k == 1 else [[], [k], [features, k], [features, 1]]
    shape = list(value.shape)
    if shape not in allowed and shape not in ([1], [1, 1][: 1 + (k > 1)]):
        raise ValueError(f"{name} must be one number or have shape {' or '.join(map(str, allowed[1:]))}, got {shape}")
    return value.to(z.dtype)


def check_function(f: Any, features: int) -> None:
    if not (hasattr(f, "forward") and hasattr(f, "inverse")):
        raise TypeError(
            f"f must have forward and inverse (a fmean.functions.ScalarFunction does), got {type(f).__name__}"
        )
    channels = getattr(f, "channels", 1)
    if channels not in (1, features):
        raise ValueError(
            f"f holds parameters for {channels} features, but x has {features} in its last dimension"
            + (" apart from dim" if features == 1 else "")
        )


def check_output(s: Tensor, z: Tensor) -> None:
    if s.shape != z.shape and s.shape[:-1] != z.shape:
        raise ValueError(
            f"f must keep the shape of its input, or add a last dimension for its channels: "
            f"it turned {list(z.shape)} into {list(s.shape)}"
        )


def check_inverse(y: Tensor, s: Tensor, z: Tensor) -> None:
    expected = s.shape if s.dim() == z.dim() else s.shape[:-1]
    if y.shape != expected:
        raise ValueError(f"f.inverse must turn {list(s.shape)} into {list(expected)}, but gave {list(y.shape)}")
