"""One page about every aggregation in a model, for a browser."""

from __future__ import annotations

import base64
import datetime
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from .. import functions
from ..genagg import GenAgg
from .explanation import explain
from .history import is_history

__all__ = ["layer_name", "report"]

SCRIPTS = ("aggregate", "dom", "charts", "cards", "explorer", "page")
DIGITS = 7  # of each number in the page: also 1000 ± 0.05 can be drawn


def report(
    model: nn.Module | Mapping[str, GenAgg],
    path: str | Path,
    history: Any = None,
    title: str | None = None,
) -> Path:
    """Writes one HTML page about every `GenAgg` in a model: what each does, in words, numbers and pictures.

    The page needs no network and no other file. Needs plotly: ``pip install 'fmean[report]'``.

    Arguments:
        model: Any module with a `GenAgg` in it, or a `GenAgg`; or aggregations with names of their own.
        path: The file to write; missing folders are made.
        history: What a `fmean.History` recorded during training, or its `to_dict()`; drawn with each layer.
        title: The page's title. (default: the name of the model's class)

    Returns:
        The path.

    Example:
        >>> import tempfile
        >>> from torch_geometric.nn import GraphConv
        >>> model = nn.Sequential(GraphConv(8, 8, aggr=GenAgg()), GraphConv(8, 2, aggr="max"))
        >>> report(model, tempfile.mkdtemp() + "/report.html").name
        'report.html'
    """
    if not isinstance(model, (nn.Module, Mapping)):
        raise TypeError(f"model must be a torch.nn.Module or a mapping of GenAggs, got {type(model).__name__}")
    name = type(model).__name__ if isinstance(model, nn.Module) else ""
    found = _in_model(model) if isinstance(model, nn.Module) else {key: (agg, {}) for key, agg in model.items()}
    if not found:
        raise ValueError(f"there is no GenAgg in {name or 'what was given'}, so there is nothing to report")
    record = _recorded(history)
    layers = []
    for key, (agg, more) in found.items():
        shown = layer_name(key) or name or "aggregation"
        layer = explain(agg, shown).to_dict() | more | {"name": shown}
        layer |= {"explore": _for_explorer(agg)}
        past = _past(record["layers"], key, shown, len(found) == 1)
        if past:
            layer["history"] = {**past, "steps": record["steps"]}
        layers.append(layer)
    title = title or (f"What {name} learned" if name and name != "GenAgg" else "What the aggregations learned")
    page = _page(title, {"model": name if name != "GenAgg" else "", "layers": layers})
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(page.encode("utf-8", "replace"))  # bytes: a translated line end would change a script's hash
    return path


def _in_model(model: nn.Module) -> dict[str, tuple[GenAgg, dict[str, Any]]]:
    """Every GenAgg of a model under its path, once, with the kind of its layer and its other paths."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[str, tuple[GenAgg, dict[str, Any]]] = {}
    first: dict[int, str] = {}
    for path, module in modules.items():
        if not isinstance(module, GenAgg):
            continue
        if id(module) in first:
            found[first[id(module)]][1]["also"].append(layer_name(path))
        else:
            first[id(module)] = path
            found[path] = (module, {"kind": _kind(path, modules), "also": []})
    return found


def layer_name(path: str) -> str:
    """The path of the layer, where the aggregation is PyG's `aggr_module` of it."""
    return "" if path == "aggr_module" else path.removesuffix(".aggr_module")


def _kind(path: str, modules: dict[str, nn.Module]) -> str:
    """The layer around an aggregation, such as "GraphConv(64 → 64)"."""
    if not path:
        return ""
    layer = modules[path.rpartition(".")[0]]
    if isinstance(layer, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
        return ""
    sizes = [getattr(layer, size, None) for size in ("in_channels", "out_channels")]
    return type(layer).__name__ + (f"({sizes[0]} → {sizes[1]})" if None not in sizes else "")


def _for_explorer(agg: GenAgg) -> dict[str, Any] | None:
    """What sets the page's explorer to an aggregation, or to the heaviest channel of its f; None: it cannot be."""
    if agg.channels > 1:
        return None
    f, alpha = agg.f, agg.alpha.detach().flatten().tolist()
    if isinstance(f, functions.Mixture):
        heaviest = int(f.w.argmax())
        f, alpha = f.channel(heaviest), alpha[heaviest % len(alpha) :]
    numbers = {"alpha": alpha[0], "beta": agg.beta.item()}
    if isinstance(f, functions.Magnitude):
        name, numbers = "|x|^p", numbers | {"p": f.q.item()}
    elif isinstance(f, functions.SinhLinear):
        name, numbers = f"sinh(p·{f.argument} + c)", numbers | {"p": f.p.item(), "c": f.c.item()}
    else:
        return None
    return {"f": name, **numbers} if all(map(math.isfinite, numbers.values())) else None


def _recorded(history: Any) -> dict[str, Any]:
    record = history.to_dict() if hasattr(history, "to_dict") else history
    if record is None:
        return {"steps": [], "layers": {}}
    if not is_history(record):
        raise ValueError(f"history must be a fmean.History or its to_dict(), got {type(history).__name__}")
    return dict(record)


def _past(layers: Mapping[str, Any], key: str, shown: str, alone: bool) -> Any:
    """What was recorded of a layer: under its path, or one that ends it, for a model within the one recorded."""
    for name in (key, shown):
        if name in layers:
            return layers[name]
    ends = [past for name, past in layers.items() if key.endswith(f".{name}") or (alone and len(layers) == 1)]
    return ends[0] if len(ends) == 1 else None


def _page(title: str, data: dict[str, Any]) -> str:
    from .. import __version__  # not before fmean is loaded

    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the page needs plotly: pip install 'fmean[report]'", name=error.name, path=error.path
        ) from None
    folder = files(__package__) / "page"

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")

    plotly = get_plotlyjs()
    script = '(() => {\n"use strict";\n' + "\n".join(text(f"{name}.js") for name in SCRIPTS) + "})();"
    data = {"version": __version__, "date": datetime.date.today().isoformat(), **data}
    # The two scripts by their hashes and no others, and nothing from anywhere else.
    policy = (
        f"default-src 'none'; script-src {_hash(script)} {_hash(plotly)}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(title),
        "style": text("page.css"),
        "data": _json(data),
        "plotly": plotly,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], text("page.html"))


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _json(data: Any) -> str:
    """JSON that is safe within a script element: no < ends it, and it is ASCII."""
    text = json.dumps(_plain(data), allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plain(value: Any) -> Any:
    """Numbers cut to a few digits; NaN and ∞, which JSON does not know, as null."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
