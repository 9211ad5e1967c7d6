"""The paper's network, and the file a trained one is kept in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import global_mean_pool

from ...checkpoint import read, save_atomically
from ...genagg import GenAgg
from ...nn import GraphConv as FusedGraphConv
from .aggregators import aggregator
from .nodewise import NodewiseGraphConv

__all__ = ["FORMAT", "Network", "load_model", "model_content", "save_model"]

FORMAT = "fmean model 1"


class Network(nn.Module):
    r"""z⁰ = W·x + b,  zᵏ⁺¹ = Mish(W₁·zᵏ + W₂·⨁ zᵏ + b),  ŷ = MLP(z⁴): the paper's 4-layer GraphConv.

    The preprocessor is one linear layer, the postprocessor four with Mish between them. Where graphs are to be
    classified, a mean over the nodes comes before it. With `norm` and `residual`, as the benchmark's own networks
    have them, a layer is zᵏ⁺¹ = zᵏ + Mish(BatchNorm(W₁·zᵏ + W₂·⨁ zᵏ + b)).

    Arguments:
        features: Of the nodes; those of the positions counted, where `positions` is True.
        classes: How many.
        task: `"node"` or `"graph"`: what is classified.
        aggregator: A name of `AGGREGATORS`.
        hidden: The size of every z.
        layers: The number of GraphConv layers.
        head: The sizes between the layers of the postprocessor: `"wide"`: `hidden`; `"narrow"`: that of the
            classes where nodes are classified, as in the authors' public code.
        norm: Whether BatchNorm follows every GraphConv.
        residual: Whether zᵏ is added.
        positions: Whether the nodes' positions are joined to x.

    Shapes:
        `x` ``[N, F]``, `edge_index` ``[2, E]``, `batch` ``[N]`` → ``[N, classes]`` or ``[size, classes]``; of a
        `fmean.data.Block` also `real` ``[size, N / size]``: which nodes count in means and in BatchNorm

    Example:
        >>> network = Network(3, 2, "node", "genagg-sinh")
        >>> network(torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 2])
    """

    def __init__(
        self,
        features: int,
        classes: int,
        task: str,
        aggregator: str,
        hidden: int = 64,
        layers: int = 4,
        head: str = "wide",
        norm: bool = False,
        residual: bool = False,
        positions: bool = False,
    ) -> None:
        if task not in ("node", "graph"):
            raise ValueError(f"task must be node or graph, got {task!r}")
        if head not in ("wide", "narrow"):
            raise ValueError(f"head must be wide or narrow, got {head!r}")
        self.settings = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__()
        self.task, self.residual, self.positions = task, residual, positions
        self.before = nn.Linear(features, hidden)
        self.convs = nn.ModuleList(_conv(aggregator, hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers if norm else 0))
        width = classes if head == "narrow" and task == "node" else hidden
        sizes = [hidden, width, width, width, classes]
        self.after = nn.ModuleList(nn.Linear(i, o) for i, o in pairwise(sizes))

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        size: int | None = None,
        pos: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        if self.positions:
            if pos is None:
                raise ValueError("this network was made for nodes with positions; pos is None")
            x = torch.cat([x, pos], -1)
        z: Tensor = self.before(x)
        for k, conv in enumerate(self.convs):
            y = conv(z, edge_index)
            y = F.mish(self._normed(k, y, real) if self.norms else y)
            z = z + y if self.residual else y
        if self.task == "graph":
            z = global_mean_pool(z, batch, size) if real is None else _mean_of(z, real)
        for k, linear in enumerate(self.after):
            z = linear(F.mish(z) if k else z)
        return z

    def _normed(self, k: int, y: Tensor, real: Tensor | None) -> Tensor:
        norm: Any = self.norms[k]
        return norm(y) if real is None or not self.training else _norm_of(norm, y, real)

    @property
    def aggregations(self) -> Iterator[nn.Module]:
        """The ⨁ of each layer."""
        for conv in self.convs:
            yield conv.aggr_module  # type: ignore[misc]


def _conv(name: str, hidden: int) -> nn.Module:
    agg = aggregator(name)(hidden)
    kind = FusedGraphConv if isinstance(agg, GenAgg) else NodewiseGraphConv
    layer: nn.Module = kind(hidden, hidden, aggr=agg)
    return layer


def _mean_of(z: Tensor, real: Tensor) -> Tensor:
    """The mean over the nodes of each graph that are no dummies."""
    z = z.view(*real.shape, -1).masked_fill(~real[:, :, None], 0.0)
    return z.sum(1) / real.sum(1, keepdim=True).clamp_min(1)


def _norm_of(norm: nn.BatchNorm1d, y: Tensor, real: Tensor) -> Tensor:
    """BatchNorm in training with the statistics of the nodes that are no dummies."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    weight = real.reshape(-1, 1).to(y.dtype)
    n = weight.sum()
    mean = (weight * y).sum(0) / n
    centred = y - mean
    var = (weight * centred**2).sum(0) / n
    with torch.no_grad():
        assert norm.momentum is not None
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(var * n / (n - 1), norm.momentum)
    return centred * (var + norm.eps).rsqrt() * norm.weight + norm.bias


def model_content(model: Network, dataset: str, protocol: str, **info: Any) -> dict[str, Any]:
    """What `save_model` writes."""
    return {
        "format": FORMAT,
        "dataset": dataset,
        "protocol": protocol,
        "aggregator": model.settings["aggregator"],
        "settings": model.settings,
        **info,
        "state_dict": {name: value.detach().cpu() for name, value in model.state_dict().items()},
    }


def save_model(model: Network, path: str | Path, dataset: str, protocol: str, **info: Any) -> None:
    """Writes a network to a file that `load_model` reads; `info` are plain values to be kept with it.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/model.pt"
    >>> save_model(Network(3, 2, "node", "mean"), path, "pattern", "paper")
    >>> model, info = load_model(path)
    >>> info["dataset"], info["aggregator"]
    ('pattern', 'mean')
    """
    save_atomically(model_content(model, dataset, protocol, **info), path)


def load_model(path: str | Path) -> tuple[Network, dict[str, Any]]:
    """The network that `save_model` wrote, ready to be used, and what else the file says about it."""
    content = read(path, "a model of fmean reproduce benchmark")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a model of fmean reproduce benchmark: it has no mark {FORMAT!r}")
    try:
        model = Network(**content["settings"])
        model.load_state_dict(content["state_dict"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} is marked {FORMAT!r}, but does not fit: {error}") from None
    model.eval()
    return model, {name: value for name, value in content.items() if name not in ("format", "state_dict")}
