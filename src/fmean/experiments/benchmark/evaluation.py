"""How right a network is."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ...data import Batch, GraphSet, Loader

__all__ = ["accuracy", "answer", "new_accuracy", "tested"]


def answer(model: nn.Module, batch: Batch) -> Tensor:
    """What a network says of a batch: ``[N, classes]`` or ``[graphs, classes]``."""
    return model(batch.x, batch.edge_index, batch.batch, batch.graphs, batch.pos)  # type: ignore[no-any-return]


@cache
def _accuracy() -> Any:
    from torchmetrics import Metric

    class Accuracy(Metric):  # type: ignore[misc]
        """As torchmetrics' MulticlassAccuracy, whose choice of what counts waits for the GPU at every update."""

        full_state_update = False

        def __init__(self, classes: int, balanced: bool) -> None:
            super().__init__()
            self.balanced = balanced
            self.add_state("right", torch.zeros(classes, dtype=torch.long), dist_reduce_fx="sum", persistent=True)
            self.add_state("all", torch.zeros(classes, dtype=torch.long), dist_reduce_fx="sum", persistent=True)
            self.register_buffer("classes", torch.arange(classes), persistent=False)

        def update(self, said: Tensor, y: Tensor) -> None:
            is_class = y.reshape(-1, 1) == self.classes  # none, where y is not to count
            self.right += (is_class & (said == y).reshape(-1, 1)).sum(0)
            self.all += is_class.sum(0)

        def compute(self) -> Tensor:
            right: Tensor = self.right
            all_: Tensor = self.all
            if not self.balanced:
                return right.sum() / all_.sum()
            return (right / all_.clamp_min(1)).sum() / (all_ > 0).sum()

        def reset_in_place(self) -> None:
            """`reset` would make new tensors, and a CUDA graph goes on writing to these."""
            self.right.zero_()
            self.all.zero_()
            self._computed = None

    return Accuracy


def new_accuracy(classes: int, balanced: bool = False) -> Any:
    """The share of right answers (a metric of torchmetrics); `balanced`: the mean over the classes of each one's share.

    What is not among the classes does not count, nor does a class of which there is none.

    >>> metric = new_accuracy(2)
    >>> metric.update(torch.tensor([0, 1, 1]), torch.tensor([0, 1, -100]))
    >>> metric.compute()
    tensor(1.)
    """
    return _accuracy()(classes, balanced)


@torch.no_grad()
def tested(model: nn.Module, batches: Loader, balanced: bool) -> Any:
    """The metric after all batches, in evaluation mode. A GPU is not waited for."""
    training = model.training
    model.eval()
    metric = new_accuracy(batches.graphs.classes, balanced).to(batches.graphs.device)
    try:
        for batch in batches.epoch(0):
            metric.update(answer(model, batch).argmax(-1), batch.y)
        return metric
    finally:
        model.train(training)


def accuracy(model: nn.Module, graphs: GraphSet, batch_size: int = 256, balanced: bool = False) -> float:
    """The share of nodes or graphs that a network classifies as they are, in evaluation mode.

    Arguments:
        model: A `Network`; it and the graphs are on the same device.
        graphs: What it is tested on, as `fmean.data.load` gives it.
        batch_size: So many graphs at a time; the result is the same for all.
        balanced: The mean over the classes of the share of each.
    """
    return float(tested(model, Loader(graphs, batch_size), balanced).compute())
