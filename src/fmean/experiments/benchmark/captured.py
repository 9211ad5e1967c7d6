"""Training steps as a CUDA graph: one call of the host for each, so that many networks share a GPU."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ...data import Block, Blocks
from ...seen import Seen

__all__ = ["Captured"]

# Steps that are handed to the GPU at once, and how many such chunks it may have still to do: what bridges the time in
# which the host is busy elsewhere. A stream takes replays of graphs with some 9,900 kernels in all (seen on an H200: 53
# of 185 kernels, 60 of 166); the next replay waits until there is room, and all other networks with it. A step has 150
# to 400 kernels, so these two must not come to more than 24 steps.
CHUNK = 8
AHEAD = 3


class Captured:
    """The steps of one network on a stream of its own.

    The first step is recorded as a CUDA graph, which takes its batch by a number that lies on the GPU; each further
    step is that graph, replayed. Elsewhere than on a GPU every step is simply taken.

    Arguments:
        blocks: What is trained on; batches of the same shapes.
        batch_size: Graphs of a batch.
        step: Takes one step, given a batch and how many steps were taken before (on the device); waits for nothing.
        network, adam: What a step changes: recording must not.
        seen: What counts the calls of aggregations.
        also: Further tensors that a step changes.
    """

    def __init__(
        self,
        blocks: Blocks,
        batch_size: int,
        step: Any,
        network: nn.Module,
        adam: torch.optim.Optimizer,
        seen: list[Seen],
        also: list[Tensor],
    ) -> None:
        self.blocks, self.step, self.network, self.adam, self.seen, self.also = blocks, step, network, adam, seen, also
        device = blocks.count.device
        graphs = len(blocks.graphs)
        steps = -(-graphs // batch_size)
        self.none = graphs  # the number of a graph of dummies
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.order = torch.full((steps, batch_size), self.none, device=device)
        self.stream: Any = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            # It must not overtake what the network, the metric and the tensors above are still being filled with.
            self.stream.wait_stream(torch.cuda.current_stream(device))
        self.graph: torch.cuda.CUDAGraph | None = None
        self.events: deque[Any] = deque()

    def on_stream(self) -> Any:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def epoch(self, number: int, order: Tensor, first: int) -> Iterator[int]:
        """The steps of an epoch from `first` on; how many have just been handed over, 0 while the GPU is waited for.

        Arguments:
            number: Of the epoch.
            order: The graphs, one after the other.
        """
        steps, size = self.order.shape
        rows = torch.full((steps * size,), self.none)
        rows[: len(order)] = order
        with self.on_stream():
            self.order.copy_(rows.view(steps, size))
            self.at.fill_(number * steps + first)
        for begin in range(first, steps, CHUNK):
            while len(self.events) >= AHEAD and not self.events[0].query():
                yield 0
            count = min(CHUNK, steps - begin)
            with self.on_stream():
                for _ in range(count):
                    self._take()
                self._mark()
            yield count

    def waited(self) -> Iterator[None]:
        """As long as the GPU has something to do for this network."""
        with self.on_stream():
            self._mark()
        while self.events and not self.events[-1].query():
            yield
        self.events.clear()

    def finish(self) -> None:
        """Waits."""
        if self.stream is not None:
            self.stream.synchronize()

    def _mark(self) -> None:
        while self.events and self.events[0].query():
            self.events.popleft()
        if self.stream is not None:
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self.stream)
            self.events.append(event)

    def _take(self) -> None:
        if self.stream is None:
            self._step()
            return
        if self.graph is None:
            self.graph = self._recorded()
        self.graph.replay()

    def _step(self) -> None:
        which = self.order.index_select(0, self.at % len(self.order))[0]
        block: Block = self.blocks.batch(which)
        self.step(block, self.at[0])
        self.at += 1

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """What Triton compiles, and cuBLAS sets up, cannot be recorded: two steps are taken, and taken back."""
        tensors = [*self.network.state_dict().values(), self.at, *self.also]
        kept, calls = [t.clone() for t in tensors], [seen.calls for seen in self.seen]
        moments = {p: copy.deepcopy(state) for p, state in self.adam.state.items()}
        for _ in range(2):
            self._step()
        self.stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Only this thread's calls: heartbeats and other networks go on meanwhile.
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            self._step()
        with torch.no_grad():
            for t, value in zip(tensors, kept, strict=True):
                t.copy_(value)
            for p, state in self.adam.state.items():
                for name, value in state.items():
                    value.copy_(moments[p][name]) if moments.get(p) else value.zero_()
        for seen, number in zip(self.seen, calls, strict=True):
            seen.calls = number
        return graph
