"""The aggregations in a checkpoint, without the model's code and without running any from the file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import FORMAT, load, read
from ..functions import MLPAutoencoder, ScalarFunction, Sinh
from ..genagg import GenAgg
from .history import is_history

__all__ = ["Found", "aggregations"]

NESTED = ("state_dict", "model_state_dict", "model")
LARGEST = 10_000_000  # numbers in one tensor: a small file can claim any shape

State = dict[str, Tensor]


@dataclass(frozen=True)
class Found:
    """What a checkpoint says of aggregations."""

    layers: dict[str, GenAgg]
    """Each under its path in the model."""

    history: dict[str, Any] | None = None
    """What was recorded in training, as `History.to_dict()`, where the checkpoint has it."""

    skipped: dict[str, str] = field(default_factory=dict)
    """What looks like a GenAgg, and why it could not be read."""


def aggregations(path: str | Path) -> Found:
    """The aggregations in a file: one that `fmean.save` wrote, or a model's checkpoint.

    A checkpoint is a `state_dict`, or a dictionary that holds one, as "state_dict" (Lightning), "model_state_dict",
    "model" or another name. The f of a GenAgg is told from its keys: `Sinh` and `MLPAutoencoder`. Of one with
    another f there is a warning; it can be shown by ``report(model)``.

    Arguments:
        path: The file, read with ``torch.load(weights_only=True)``.

    Example:
        >>> import tempfile
        >>> from torch_geometric.nn import GraphConv
        >>> path = tempfile.mkdtemp() + "/model.pt"
        >>> torch.save(GraphConv(2, 2, aggr=GenAgg(channels=2)).state_dict(), path)
        >>> aggregations(path).layers["aggr_module"].channels
        2
    """
    content = _content(path)
    if content.get("format") == FORMAT:
        return Found({Path(path).stem: load(path)}, _history(content))
    candidates = next(filter(None, map(_candidates, _states(content))), {})
    layers: dict[str, GenAgg] = {}
    skipped: dict[str, str] = {}
    for prefix, own in candidates.items():
        name = _name(prefix) or Path(path).stem
        read = _read(own)
        if isinstance(read, GenAgg):
            layers[name] = read
        else:
            skipped[name] = read
    if not layers:
        why = "; ".join(f"{name}: {why}" for name, why in skipped.items()) or "there is no GenAgg in it"
        raise ValueError(f"{path} has nothing to report: {why}")
    for name, why in skipped.items():
        warnings.warn(f"{name} is left out: {why}", stacklevel=2)
    return Found(layers, _history(content), skipped)


def _content(path: str | Path) -> dict[str, Any]:
    content = read(path, "a checkpoint that torch.save wrote")
    if not isinstance(content, Mapping):
        raise ValueError(f"{path} holds a {type(content).__name__}, not a model's state_dict")
    return dict(content)


def _states(content: Mapping[str, Any]) -> Iterator[State]:
    """What may be the tensors of a model by their keys, the likeliest first."""
    others = [key for key in content if key not in NESTED]
    for part in (content, *(content.get(key) for key in (*NESTED, *others))):
        if not isinstance(part, Mapping):
            continue
        state = {key: v for key, v in part.items() if isinstance(key, str) and isinstance(v, Tensor)}
        if state and all(key.startswith("module.") for key in state):  # of DataParallel
            state = {key.removeprefix("module."): v for key, v in state.items()}
        yield state


def _candidates(state: State) -> dict[str, State]:
    """What may be a GenAgg: an α and a β, with an f or the quantiles of what it has seen beside them."""
    found = {}
    for key in state:
        prefix = key.removesuffix("alpha")
        if key != prefix and (not prefix or prefix.endswith(".")) and f"{prefix}beta" in state:
            own = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            own = {k: v for k, v in own.items() if re.match(r"(alpha|beta)$|(f|seen)\.", k)}
            if len(own) > 2:
                found[prefix.removesuffix(".")] = own
    return found


def _name(prefix: str) -> str:
    return prefix.replace("_orig_mod.", "")  # of torch.compile


def _read(own: State) -> GenAgg | str:
    """The aggregation, or why there is none."""
    try:
        return _aggregation(own)
    except (ValueError, RuntimeError) as error:
        return str(error)


def _aggregation(own: State) -> GenAgg:
    for key, value in own.items():
        if value.numel() > LARGEST:
            raise ValueError(f"{key} has the shape {list(value.shape)}, which is too large for an aggregation")
    alpha, beta = own["alpha"], own["beta"]
    f, channels = _function({key.removeprefix("f."): v for key, v in own.items() if key.startswith("f.")})
    agg = GenAgg(f, torch.zeros(alpha.shape), torch.zeros(beta.shape), channels=channels)
    agg.to(torch.float64 if alpha.dtype == torch.float64 else torch.float32)
    known = agg.state_dict()
    agg.load_state_dict({key: v for key, v in own.items() if key in known or not key.startswith("seen.")})
    agg.eval()
    return agg


def _function(state: State) -> tuple[ScalarFunction, int]:
    """The f with these keys, with parameters still to be loaded; and its channels."""
    keys = set(state)
    if keys == {"omega", "parts.0.rho", "parts.0.c", "parts.1.rho", "parts.2.rho", "parts.2.c"}:
        omega = state["omega"]
        channels = omega.size(0) if omega.dim() == 2 else 1
        return Sinh(channels), channels
    layers = [state[key] for i in range(len(keys)) if (key := f"encoder.layers.{i}") in keys]
    if layers and all(layer.dim() in (2, 3) for layer in layers):
        sizes = [layers[0].size(-1) - 1, *(layer.size(-2) for layer in layers)]
        channels = layers[0].size(0) if layers[0].dim() == 3 else 1
        return MLPAutoencoder(sizes, batch_norm="encoder.norms.0.weight" in keys, channels=channels), channels
    raise ValueError(
        "its f cannot be told from the keys of a state_dict, as that of Sinh and MLPAutoencoder can; "
        "use fmean.report(model, path), or fmean.save for the aggregation"
    )


def _history(content: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is under "history", or what the callback of `History.lightning()` left."""
    callbacks = content.get("callbacks")
    left = callbacks.values() if isinstance(callbacks, Mapping) else ()
    for history in (content.get("history"), *left):
        if is_history(history):
            return dict(history)
    return None
