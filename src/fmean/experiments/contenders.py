"""What `fmean bench` measures: aggregations of PyG, of the paper's authors, and ours, ready to be called."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GraphConv
from torch_geometric.nn.aggr import (
    MaxAggregation,
    MeanAggregation,
    PowerMeanAggregation,
    SoftmaxAggregation,
    SumAggregation,
)

from ..genagg import GenAgg
from ..kernels import plain
from ..standard import standard
from .workloads import FEATURES, Case, Data

__all__ = ["METHODS", "Contender", "WrongResultError", "check", "contender"]

BETA = 0.1  # not 0, so that the centring has something to do


def _authors() -> nn.Module:
    from genagg import GenAgg as AuthorsGenAgg
    from genagg import MLPAutoencoder

    with warnings.catch_warnings():  # torch.jit.script, which it uses, is deprecated
        warnings.simplefilter("ignore")
        agg: Any = AuthorsGenAgg(MLPAutoencoder(layer_sizes=(1, 2, 2, 4), batchnorm=False))
    nn.init.constant_(agg.b, BETA)
    return agg  # type: ignore[no-any-return]


def _ours(f: str) -> nn.Module:
    agg = GenAgg(f)
    nn.init.constant_(agg.beta, BETA)
    return agg


METHODS: dict[str, Callable[[], nn.Module]] = {
    "pyg-sum": SumAggregation,
    "pyg-mean": MeanAggregation,
    "pyg-max": MaxAggregation,
    "pyg-softmax": partial(SoftmaxAggregation, learn=True),
    "pyg-powermean": partial(PowerMeanAggregation, learn=True),
    "authors-genagg": _authors,
    "fmean-sinh": partial(_ours, "sinh"),
    "fmean-mlp": partial(_ours, "mlp"),
    "fmean-invertible": partial(_ours, "invertible"),
    "fmean-root_mean_square": partial(standard, "root_mean_square"),  # frozen, as `standard` makes them
    "fmean-log_sum_exp": partial(standard, "log_sum_exp"),
    "fmean-sinh-plain": partial(_ours, "sinh"),
}


@dataclass
class Contender:
    """One method on one case; it keeps the times measured so far."""

    method: str
    case: Case
    data: Data
    modules: list[nn.Module]  # one for each layer
    path: Callable[[], AbstractContextManager[None]] = nullcontext
    inputs: list[Tensor] = field(init=False)
    leaves: list[Tensor] = field(init=False)
    times: dict[str, list[float]] = field(init=False, default_factory=lambda: {"forward": [], "forward_backward": []})
    host: dict[str, list[float]] = field(init=False, default_factory=lambda: {"forward": [], "forward_backward": []})
    """How long each call kept its caller, on a GPU."""

    def __post_init__(self) -> None:
        # Each layer has messages of its own, of the same values: no gradients are added up.
        self.inputs = [self.data.x.detach().requires_grad_() for _ in self.modules]
        self.leaves = self.inputs + [p for module in self.modules for p in module.parameters()]

    def call(self) -> list[Tensor]:
        index = self.data.index
        if self.case.layers > 1:
            index = index.clone()  # nothing that is remembered about the index of the call before helps
        size = {"dim_size": self.case.nodes} if self.case.level == "aggregation" else {}
        with self.path():
            return [module(x, index, **size) for module, x in zip(self.modules, self.inputs, strict=True)]

    def forward(self) -> list[Tensor]:
        with torch.no_grad():
            return self.call()

    def forward_backward(self) -> list[Tensor | None]:
        """The results, the gradients of the inputs, and those of the parameters."""
        ys = self.call()
        return [*ys, *torch.autograd.grad(ys, self.leaves, [self.data.grad] * len(ys), allow_unused=True)]


def contender(method: str, case: Case, data: Data) -> Contender:
    torch.manual_seed(0)
    modules = [_module(method, case.level).to(data.x.device) for _ in range(case.layers)]
    return Contender(method, case, data, modules, plain if method.endswith("-plain") else nullcontext)


def _module(method: str, level: str) -> nn.Module:
    agg = METHODS[method]()
    if level == "aggregation":
        return agg
    if method.startswith("fmean-"):
        from ..nn import GraphConv as OurGraphConv

        return OurGraphConv(FEATURES, FEATURES, aggr=agg)
    layer: nn.Module = GraphConv(FEATURES, FEATURES, aggr=agg)  # an instance is what PyG makes of "add" as well
    return layer


class WrongResultError(RuntimeError):
    """A fused path that does not compute what the plain one does."""


def check(one: Contender) -> None:
    """Raises WrongResultError unless result (10⁻⁴) and gradients (10⁻³) are those of the plain path, by relative norm.

    A gradient that is small beside the largest one of the parameters, since its terms cancel, is held against that.
    Where millions of terms cancel, the plain path itself has no such precision in float32: what differs from it is
    compared with the plain path in float64.
    """
    with _no_inversion(one.modules):
        ours = one.forward_backward()
        with plain():
            reference = one.forward_backward()
        found = _difference(one, ours, reference)
        if found is not None:
            data = replace(one.data, x=one.data.x.double(), grad=one.data.grad.double())
            exact = replace(one, data=data, modules=[copy.deepcopy(module).double() for module in one.modules])
            with plain():
                found = _difference(one, ours, exact.forward_backward())
    if found is not None:
        raise WrongResultError(f"{one.method} ({one.case.workload}, {one.case.level}): {found}; nothing was measured")


def _difference(one: Contender, ours: list[Tensor | None], reference: list[Tensor | None]) -> str | None:
    """What differs by too much, in words."""
    n = len(one.modules)
    norms = [0.0 if b is None else _norm(b) for b in reference]
    least = 0.01 * max(norms[2 * n :], default=0.0)
    names = [f"{what} of layer {i}" for what in ("result", "gradient of x") for i in range(n)]
    names += [f"gradient of {name}" for module in one.modules for name, _ in module.named_parameters()]
    for i, (name, a, b) in enumerate(zip(names, ours, reference, strict=True)):
        if a is None or b is None:
            wrong, error = a is not b, float("nan")
        else:
            error = _norm(a - b) / max(norms[i], least if i >= 2 * n else 0.0, 1e-30)
            wrong = not error < (1e-4 if i < n else 1e-3)  # NaN is wrong, too
        if wrong:
            return f"the {name} differs from that of the plain path by {error:.2g} of its norm"
    return None


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x.detach(), dtype=torch.float64))


@contextmanager
def _no_inversion(modules: list[nn.Module]) -> Iterator[None]:
    """Without the inversion objective: each path may take a sample of its own for it."""
    with ExitStack() as stack:
        for f in (f for module in modules for f in module.modules() if getattr(f, "inversion", 0)):
            stack.callback(setattr, f, "inversion", f.inversion)
            f.inversion = 0.0  # type: ignore[assignment]
        yield
