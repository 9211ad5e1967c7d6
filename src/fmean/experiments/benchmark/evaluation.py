"""How right a network is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...data import Batch, GraphSet, Loader
from .protocols import IGNORED

__all__ = ["accuracy", "answer", "new_accuracy"]


def answer(model: nn.Module, batch: Batch) -> Tensor:
    """What a network says of a batch: ``[N, classes]`` or ``[graphs, classes]``."""
    return model(batch.x, batch.edge_index, batch.batch, batch.graphs, batch.pos)  # type: ignore[no-any-return]


def new_accuracy(classes: int, balanced: bool = False) -> Any:
    """The share of right answers (torchmetrics); `balanced`: the mean over the classes of each one's share.

    A class of which there is none does not count, nor does what has none.
    """
    from torchmetrics.classification import MulticlassAccuracy

    return MulticlassAccuracy(
        classes,
        average="macro" if balanced else "micro",
        ignore_index=IGNORED,
        validate_args=False,  # a look at the values would wait for the GPU
    )


@torch.no_grad()
def accuracy(model: nn.Module, graphs: GraphSet, batch_size: int = 256, balanced: bool = False) -> float:
    """The share of nodes or graphs that a network classifies as they are, in evaluation mode.

    Arguments:
        model: A `Network`; it and the graphs are on the same device.
        graphs: What it is tested on, as `fmean.data.load` gives it.
        batch_size: So many graphs at a time; the result is the same for all.
        balanced: The mean over the classes of the share of each.
    """
    training = model.training
    model.eval()
    metric = new_accuracy(graphs.classes, balanced).to(graphs.x.device)
    try:
        for batch in Loader(graphs, batch_size).epoch(0):
            # Once per batch: to add up all that is right costs a dozen calls of the GPU, and batches are large.
            metric.update(answer(model, batch).argmax(-1), batch.y)
        return float(metric.compute())
    finally:
        model.train(training)
