"""The aggregations that take part in the benchmark, made afresh for every layer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import (
    Aggregation,
    MaxAggregation,
    MeanAggregation,
    MultiAggregation,
    PowerMeanAggregation,
    SoftmaxAggregation,
    SumAggregation,
)

from ...functions import SinhLinear
from ...genagg import GenAgg

__all__ = ["AGGREGATORS", "PNA", "Aggregator", "aggregator", "available"]


class PNA(Aggregation):  # type: ignore[misc]
    r"""PNA(X) = W·([1, n, 1/n] ⊗ [mean(X), std(X), min(X), max(X)]) + b, the paper's form of PNA as an aggregation.

    W maps from ℝ^(12·d) to ℝ^d. For an empty set n counts as 1, and the result is b.

    Arguments:
        features: The number d of features.

    Shapes:
        `x` ``[N, d]``, `index` ``[N]`` → ``[dim_size, d]``

    Example:
        >>> PNA(8)(torch.randn(5, 8), torch.tensor([0, 0, 0, 1, 1]), dim_size=2).shape
        torch.Size([2, 8])
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.parts = MultiAggregation(["mean", "std", "min", "max"])
        self.linear = nn.Linear(12 * features, features)

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
    ) -> Tensor:
        n = self.reduce(x.new_ones(x.size(dim), 1), index, ptr, dim_size, dim, reduce="sum").clamp_min(1)
        return self.scaled(self.parts(x, index, ptr, dim_size, dim), n)

    def scaled(self, parts: Tensor, n: Tensor) -> Tensor:
        """W·([1, n, 1/n] ⊗ parts) + b."""
        return self.linear(torch.cat([parts, parts * n, parts / n], -1))  # type: ignore[no-any-return]


def _authors(features: int) -> nn.Module:
    from genagg import GenAgg as AuthorsGenAgg
    from genagg import MLPAutoencoder

    with warnings.catch_warnings():  # torch.jit.script, which it uses, is deprecated
        warnings.simplefilter("ignore")
        agg: Any = AuthorsGenAgg(MLPAutoencoder(layer_sizes=(1, 2, 2, 4), batchnorm=True))
    return agg  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Aggregator:
    """How an aggregation is made for a layer of so many features, and how fast what it learns may move."""

    make: Callable[[int], nn.Module]
    learns: bool = False
    """Whether it is a learnable aggregation, whose few own parameters have a learning rate of their own."""
    package: str = ""
    """A package that has to be there."""
    title: str = ""


def _pyg(kind: Callable[..., nn.Module], **options: Any) -> Callable[[int], nn.Module]:
    return lambda features: kind(**options)


def _ours(f: str | Callable[[], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda features: GenAgg(f if isinstance(f, str) else f())


def _steep(features: int = 1) -> SinhLinear:
    """Begins between mean and max, with p = 3 and c = 2."""
    return SinhLinear(features, start=2.0, rate=3.0)


def _turns(features: int) -> SinhLinear:
    """Every second feature begins as a mean, with p = 1 and c = 0."""
    start, rate = ([values[i % 2] for i in range(features)] for values in ((2.0, 0.0), (3.0, 1.0)))
    return SinhLinear(features, start, rate)


def _each(f: Callable[[int], nn.Module]) -> Callable[[int], nn.Module]:
    return lambda features: GenAgg(f(features), channels=features)


AGGREGATORS: dict[str, Aggregator] = {
    "genagg-sinh": Aggregator(_ours("sinh"), True, title="GenAgg (sinh)"),
    "genagg-sinh-linear": Aggregator(_ours(SinhLinear), True, title="GenAgg (sinh, one channel)"),
    "genagg-sinh-steep": Aggregator(_ours(_steep), True, title="GenAgg (sinh, steep)"),
    "genagg-sinh-each": Aggregator(_each(_steep), True, title="GenAgg (sinh, steep, of each feature)"),
    "genagg-sinh-turns": Aggregator(_each(_turns), True, title="GenAgg (sinh, steep or mean, of each feature)"),
    "genagg-mlp": Aggregator(_ours("mlp"), True, title="GenAgg (MLP)"),
    "genagg-invertible": Aggregator(_ours("invertible"), True, title="GenAgg (invertible)"),
    "power": Aggregator(_pyg(PowerMeanAggregation, learn=True), True, title="P-Agg"),
    "softmax": Aggregator(_pyg(SoftmaxAggregation, learn=True), True, title="S-Agg"),
    "pna": Aggregator(PNA, title="PNA"),  # what it learns is a layer of the network, as large as the others
    "mean": Aggregator(_pyg(MeanAggregation), title="mean"),
    "sum": Aggregator(_pyg(SumAggregation), title="sum"),
    "max": Aggregator(_pyg(MaxAggregation), title="max"),
    "authors": Aggregator(_authors, True, "genagg", title="the authors' GenAgg"),
}


def available() -> tuple[str, ...]:
    """All but those whose package is not installed."""
    return tuple(name for name, one in AGGREGATORS.items() if not one.package or find_spec(one.package))


def aggregator(name: str) -> Callable[[int], nn.Module]:
    """What makes this aggregation for so many features.

    >>> aggregator("softmax")(64)
    SoftmaxAggregation(learn=True)
    """
    if name not in AGGREGATORS:
        raise ValueError(f"unknown aggregator {name!r}; known are {', '.join(AGGREGATORS)}")
    return partial(AGGREGATORS[name].make)
