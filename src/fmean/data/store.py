"""A `GraphSet` in a compact file that is known to be whole when it is read."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import save_atomically
from .graphs import GraphSet, spread, starts, targets
from .places import DamagedError, MissingError

__all__ = ["read", "write"]

FORMAT = "fmean graphs 2"
FIRST = "fmean graphs 1"  # with the sources themselves, and nothing packed
WORDS = ("task", "classes", "name")


def write(graphs: GraphSet, path: str | Path, made: str = "") -> None:
    """Writes graphs to a file, which is there as a whole or not at all; `made` says how they came about.

    Every tensor is kept in the smallest type that holds its values exactly, and packed. Of the edges, which are in
    order of target, the nodes' in-degrees are kept, and of the sources the steps from one to the next: neighbours have
    numbers that are near each other, so steps are small.
    """
    node = graphs.node_ptr[:-1].repeat_interleave(graphs.edge_ptr.diff())
    node += graphs.edge_index[1]
    if (node.diff() < 0).any():
        raise ValueError("the edges of each graph must be in order of target")
    kept: dict[str, Tensor] = {
        "x": graphs.x,
        "step": _steps(graphs.edge_index, node),
        "degree": torch.bincount(node, minlength=len(graphs.x)),
        "y": graphs.y,
        "nodes": graphs.node_ptr.diff(),
    }
    if graphs.pos is not None:
        kept["pos"] = graphs.pos
    kept |= {f"mask {name}": mask for name, mask in (graphs.masks or {}).items()}
    kept = {name: _smallest(tensor) for name, tensor in kept.items()}
    about = {word: getattr(graphs, word) for word in WORDS} | {"made": made}
    packed = {name: _packed(tensor) for name, tensor in kept.items()}
    save_atomically({"format": FORMAT, "sha256": _digest(kept, about), "about": about, "tensors": packed}, path)


def read(path: str | Path, remedy: str, made: str | None = None) -> GraphSet:
    """The graphs that `write` wrote.

    Arguments:
        path: The file.
        remedy: What to do if it is missing or damaged: the last words of the error.
        made: If given, how the graphs must have come about.
    """
    path = Path(path)
    if not path.exists():
        raise MissingError(f"{path} is missing; {remedy}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] not in (FORMAT, FIRST):
            raise ValueError(f"it has the mark {content['format']!r}, not {FORMAT!r}")
        kept, about = content["tensors"], content["about"]
        if content["format"] == FORMAT:
            kept = {name: _from_packed(**one) for name, one in kept.items()}
        if content["sha256"] != _digest(kept, about):
            raise ValueError("its checksum is wrong")
        if made is not None and about["made"] != made:
            raise ValueError(f"it was made by {about['made']!r}, not {made!r}")
        return _unpacked(kept, about)
    except (MemoryError, PermissionError):
        raise
    except Exception as error:  # a damaged file can bring about any of them
        raise DamagedError(f"{path} is damaged ({type(error).__name__}: {error}); {remedy}") from None


def _unpacked(kept: dict[str, Tensor], about: dict[str, Any]) -> GraphSet:
    node_ptr, degree = starts(kept["nodes"]), kept["degree"].long()
    number = torch.int16 if int(kept["nodes"].max()) < 2**15 else torch.int64
    edge_index = torch.empty(int(degree.sum()), 2, dtype=number).t()
    edge_index[0] = kept["source"] if "source" in kept else _sources(kept["step"], degree, node_ptr)
    edge_index[1] = targets(degree, node_ptr, number)
    masks = {name.removeprefix("mask "): mask for name, mask in kept.items() if name.startswith("mask ")}
    return GraphSet(
        x=kept["x"].float(),
        edge_index=edge_index,
        y=kept["y"].long(),
        node_ptr=node_ptr,
        edge_ptr=starts(degree)[node_ptr],
        pos=kept["pos"].float() if "pos" in kept else None,
        masks=masks or None,
        **{word: about[word] for word in WORDS},
    )


def _steps(edge_index: Tensor, node: Tensor) -> Tensor:
    """From each edge's source to that of the next edge with the same target; the first of them from the target."""
    source, target = edge_index.to(torch.int32 if edge_index.itemsize < 4 else torch.int64)
    first = torch.ones_like(node, dtype=torch.bool)
    first[1:] = node.diff() != 0
    steps = source.clone()
    steps[1:] -= source[:-1]
    return torch.where(first, source - target, steps)


def _sources(steps: Tensor, degree: Tensor, node_ptr: Tensor) -> Tensor:
    """What `_steps` were the steps of: their sums since each target's first one, and the target."""
    sums = torch.nn.functional.pad(steps.cumsum(0, dtype=torch.int32), (1, 0))  # what overflows comes back in `ahead`
    local = spread(torch.zeros_like(node_ptr[1:]), node_ptr[:-1], len(degree), slope=1)
    ahead = local.int() - sums[starts(degree)[:-1]]
    return sums[1:] + torch.from_numpy(ahead.numpy().repeat(degree.numpy()))


def _packed(tensor: Tensor) -> dict[str, Any]:
    """All first bytes of the rows, then all second ones, …: exponents are alike, and the last bits are not."""
    flat = tensor.reshape(-1).view(torch.uint8)
    if tensor.itemsize > 1:
        flat = flat.reshape(-1, _width(tensor.dtype, tensor.shape)).t().contiguous()
    content = torch.frombuffer(bytearray(zlib.compress(flat.numpy().data, 9)), dtype=torch.uint8)
    return {"dtype": tensor.dtype, "shape": list(tensor.shape), "content": content}


def _from_packed(dtype: torch.dtype, shape: list[int], content: Tensor) -> Tensor:
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(bytearray(zlib.decompress(content.numpy().data)), dtype=torch.uint8)
    if dtype.itemsize > 1:
        flat = flat.reshape(_width(dtype, shape), -1).t().reshape(-1)
    return flat.view(dtype).reshape(shape)


def _width(dtype: torch.dtype, shape: Sequence[int]) -> int:
    """Bytes of a row."""
    return max(1, math.prod(shape[1:]) * dtype.itemsize)


def _smallest(tensor: Tensor) -> Tensor:
    floats, integers = (torch.bool, torch.float16), (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
    for dtype in floats if tensor.is_floating_point() else integers:
        small = tensor.to(dtype)
        if torch.equal(small.to(tensor.dtype), tensor):
            return small.contiguous()
    return tensor.contiguous()


def _digest(kept: dict[str, Tensor], about: dict[str, Any]) -> str:
    """sha256 of all that a file holds, names, types and shapes included."""
    digest = hashlib.sha256(repr(sorted(about.items())).encode())
    for name, tensor in sorted(kept.items()):
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
