"""One run: a network trained on one data set, on Lightning's Fabric."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...checkpoint import load_or_set_aside, save_atomically
from ...data import Batch, Block, Blocks, Loader
from ...genagg import GenAgg
from ...seen import Seen
from ..record import machine
from .aggregators import AGGREGATORS
from .captured import Captured
from .evaluation import answer, new_accuracy, tested
from .layers import layers_of
from .models import Network, model_content
from .protocols import CITATION, IGNORED, PROTOCOLS, SBM, Splits, splits
from .runs import Job

__all__ = ["Trainer", "new_fabric", "parameter_groups"]

TEST_BATCH = {"node": 128, "graph": 1024}  # graphs at a time where nothing is kept for a gradient


class _Prepared:
    """A data set on the device, in the forms that training and tests take it in."""

    def __init__(self, found: Splits, device: str) -> None:
        train, test, val = found
        self.splits = Splits(train.to(device), test.to(device), None if val is None else val.to(device))
        size = TEST_BATCH[train.task]
        self.tests = {"test": Loader(self.splits.test, size)}
        if self.splits.val is not None:
            self.tests["val"] = Loader(self.splits.val, size)

    @cached_property
    def blocks(self) -> Blocks:
        blocks = Blocks(self.splits.train, IGNORED)
        if self.splits.train.x.is_cuda:
            torch.cuda.synchronize()  # other streams will read them
        return blocks


@lru_cache(maxsize=4)
def _prepared(dataset: str, protocol: str, share: float, source: str, device: str) -> _Prepared:
    """Runs on one set follow each other, so the last ones are kept."""
    return _Prepared(splits(dataset, protocol, share, source), device)


def parameter_groups(model: Network, job: Job) -> list[dict[str, Any]]:
    """For the optimiser: what the aggregations learn, at a rate of its own, and all the rest."""
    settings = job.settings
    factor = settings.factor if AGGREGATORS[job.run.aggregator].learns else 1.0
    own = {p for agg in model.aggregations for p in agg.parameters()} if factor != 1 else set()
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if p not in own], "factor": 1.0},
        {"params": [p for p in model.parameters() if p in own], "factor": factor},
    ]
    return [group | {"lr": settings.learning_rate * group["factor"]} for group in groups if group["params"]]


class Trainer:
    """Trains the network of a job, and can be stopped at any moment: the same job goes on at its last checkpoint.

    The start is fixed by the seed, the order of the graphs by the seed and the epoch. A step whose gradient is not
    finite is left out, and counted. What the steps come to is read from a GPU at the end of an epoch and for a
    checkpoint alone. There the steps are replays of a CUDA graph where that can be (`Captured`): in float32, on one
    device, of a set of many graphs, without `torch.compile`; not with the authors' package.

    Arguments:
        job: What to do.
        checkpoint: The file that keeps the state; None: keep nothing.
        device: `"cpu"`, `"cuda"` or `"cuda:1"`.
        compile: Whether the network goes through `torch.compile`.
        fabric: With several devices, the one that `Fabric.launch` handed over.
        save_every: Seconds between two checkpoints.
        captured: Whether to take the steps that way; on a CPU they are then taken one by one. None: where it can be.
    """

    def __init__(
        self,
        job: Job,
        checkpoint: Path | None = None,
        device: str = "cpu",
        compile: bool = False,
        fabric: Any = None,
        save_every: float = 30.0,
        captured: bool | None = None,
    ) -> None:
        self.job, self.checkpoint, self.compile, self.save_every = job, checkpoint, compile, save_every
        self.protocol = PROTOCOLS[job.run.protocol]
        self.balanced = self.protocol.balanced and job.run.dataset in SBM
        self.fabric = fabric or new_fabric(device, job.settings.precision)
        run, where = job.run, self.fabric.device
        self.prepared = _prepared(run.dataset, run.protocol, run.share, job.settings.source, str(where))
        self.data = self.prepared.splits
        self.loader = Loader(self.data.train, job.batch_size, shuffle=True, seed=run.seed)
        self._begin()
        if checkpoint is not None and not load_or_set_aside(checkpoint, self._restore):
            self._begin()
        self.captured = self._new_captured() if (self._may_capture() if captured is None else captured) else None

    def _may_capture(self) -> bool:
        run, plain = self.job.run, self.job.settings.precision == "32-true" and not self.compile
        fits = run.dataset not in CITATION and not AGGREGATORS[run.aggregator].package
        return self.fabric.device.type == "cuda" and self.fabric.world_size == 1 and plain and fits

    def _new_captured(self) -> Captured:
        metric = self.right
        also = [self.skipped, metric.right, metric.all]
        adam = self.optimiser.optimizer
        return Captured(
            self.prepared.blocks, self.job.batch_size, self._block_step, self.network, adam, self._observers, also
        )

    def _on_stream(self) -> Any:
        return nullcontext() if self.captured is None else self.captured.on_stream()

    def _begin(self) -> None:
        self.epoch = self.batch = 0
        self.seconds = 0.0
        self.points: list[int] = []
        self.curves: dict[str, list[float]] = {"train": [], "test": []}
        if self.data.val is not None:
            self.curves["val"] = []
        self.chosen: dict[str, Tensor] = {}
        train, settings = self.data.train, self.job.settings
        positions = self.protocol.positions and train.pos is not None
        torch.manual_seed(self.job.run.seed)
        self.network = Network(
            train.x.size(1) + (2 if positions else 0),
            train.classes,
            train.task,
            self.job.run.aggregator,
            settings.hidden,
            settings.layers,
            settings.head,
            self.protocol.norm,
            self.protocol.residual,
            positions,
        )
        network: Any = torch.compile(self.network, dynamic=True) if self.compile else self.network
        capturable = self.fabric.device.type == "cuda"
        adam = torch.optim.Adam(parameter_groups(self.network, self.job), fused=True, capturable=capturable)
        self.model, self.optimiser = self.fabric.setup(network, adam)
        self.parameters = list(self.network.parameters())
        self.right = new_accuracy(train.classes, self.balanced).to(self.fabric.device)
        self.skipped = torch.zeros((), dtype=torch.long, device=self.fabric.device)
        self._seen: list[tuple[Tensor, Tensor]] = []

    @property
    def done(self) -> bool:
        return self.epoch >= self.job.epochs

    @property
    def progress(self) -> float:
        """Epochs that are done."""
        return self.epoch + self.batch / max(1, len(self.loader))

    def run(self) -> Iterator[float | None]:
        """Trains what is left; after a step or several, how many epochs are done; None while a GPU is waited for."""
        saved = time.monotonic()
        for going_on in self._steps() if self.captured is None else self._captured_steps(self.captured):
            if going_on and time.monotonic() - saved > self.save_every:
                self.save()
                saved = time.monotonic()
            yield self.progress if going_on else None
        self.save()

    def _steps(self) -> Iterator[bool]:
        world, rank = self.fabric.world_size, self.fabric.global_rank
        last = len(self.loader) - len(self.loader) % world  # all devices take as many steps
        while not self.done:
            self.model.train()
            began = time.monotonic()  # before a batch is made, which takes its time as well
            for batch in islice(self.loader.epoch(self.epoch), self.batch + rank, last or None, world):
                self._step(batch)
                self.batch += world
                self.seconds += time.monotonic() - began
                yield True
                began = time.monotonic()
            for _ in self._end_epoch():
                pass
            self.seconds += time.monotonic() - began
            yield True

    def _captured_steps(self, captured: Captured) -> Iterator[bool]:
        while not self.done:
            began, before = time.monotonic(), self.seconds
            self.model.train()
            for count in captured.epoch(self.epoch, self.loader.order(self.epoch), self.batch):
                self.batch += count
                self.seconds = before + time.monotonic() - began
                yield count > 0
            for _ in self._end_epoch():
                yield False
            self.seconds = before + time.monotonic() - began
            yield True

    def _step(self, batch: Batch) -> None:
        if self.protocol.schedule == "cosine":
            self._set_rates(1 + math.cos(math.pi * self.progress / self.job.epochs))
        logits = answer(self.model, batch)
        self.fabric.backward(self._loss(logits, batch.y))
        skip = self._skip()
        if self.job.settings.precision != "16-mixed":  # there the scaler leaves the step out
            self.optimiser.optimizer.found_inf = skip.float()
        self.optimiser.step()
        self.optimiser.zero_grad()
        self._seen.append((logits.detach().argmax(-1), batch.y))

    def _block_step(self, block: Block, at: Tensor) -> None:
        """A step that can be recorded: nothing of it is decided on the host. `at`: how many came before."""
        if self.protocol.schedule == "cosine":
            self._set_rates(1 + torch.cos(math.pi / (len(self.loader) * self.job.epochs) * at))
        logits = self.network(block.x, block.edge_index, None, None, block.pos, block.real)
        torch.autograd.backward(self._loss(logits, block.y))
        adam = self.optimiser.optimizer
        adam.found_inf = self._skip().float()
        adam.step()
        adam.zero_grad()
        self.right.update(logits.detach().argmax(-1), block.y)

    def _loss(self, logits: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), y, self._weights(y), ignore_index=IGNORED)

    def _skip(self) -> Tensor:
        """Clips the gradient, where that was asked for; whether it is not finite, so that its step is left out."""
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])
        if (clip := self.job.settings.clip) is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, clip, norm)
        skip = ~norm.isfinite()
        self.skipped += skip
        return skip

    def _set_rates(self, twice: Any) -> None:
        """`twice`: the share of the whole rate that the cosine leaves, times two."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.job.settings.learning_rate * group["factor"] * twice / 2

    def _weights(self, y: Tensor) -> Tensor | None:
        """A class weighs as much as the others are large, as in the benchmark's own code."""
        if not self.balanced:
            return None
        classes: Tensor = self.right.classes
        sizes: Tensor = (y[:, None] == classes).sum(0)
        return (1 - sizes / sizes.sum()) * (sizes > 0)

    def _count(self) -> None:
        """Takes what was said since the last time into account, in one go."""
        if self._seen:
            said, y = (torch.cat(part) for part in zip(*self._seen, strict=True))
            self.right.update(said, y)
            self._seen = []

    def _end_epoch(self) -> Iterator[None]:
        """Tests the network, where it is due; goes on while the GPU is at it."""
        self.epoch, self.batch = self.epoch + 1, 0
        self._count()
        if self.epoch % self.job.every == 0 or self.done:
            if self.captured is not None:
                yield from self.captured.waited()  # or what a test copies to the GPU would wait, and all others with it
            with self._on_stream():
                tests = self.prepared.tests.items()
                found = {name: tested(self.model, batches, self.balanced) for name, batches in tests}
                if self.captured is not None and (self.done or self.epoch & (self.epoch - 1) == 0):
                    self._look()
            if self.captured is not None:
                yield from self.captured.waited()
            with self._on_stream():
                self.points.append(self.epoch)
                for name, metric in [("train", self.right), *found.items()]:
                    self.curves[name].append(float(metric.compute()))
                if self.protocol.chosen and self.best == len(self.points) - 1:
                    self.chosen = {name: value.detach().clone() for name, value in self.network.state_dict().items()}
        with self._on_stream():
            self.right.reset_in_place()

    @torch.enable_grad()
    def _look(self) -> None:
        """Has the aggregations look at a batch, as they do now and then in training, but not in a CUDA graph."""
        if self._observers:
            self.network.eval()  # BatchNorm is to keep its statistics
            for agg in self.network.aggregations:
                agg.train()
            for seen in self._observers:
                seen.calls = -1
            answer(self.network, next(self.loader.epoch(self.epoch)))
            self.network.train()

    @property
    def best(self) -> int:
        """Which of the points counts: the first that is best on validation, or without that on the test."""
        curve = self.curves["val" if self.protocol.chosen else "test"]
        return max(range(len(curve)), key=curve.__getitem__)

    def save(self) -> None:
        if self.checkpoint is not None and self.fabric.is_global_zero:
            if self.captured is not None:
                self.captured.finish()
            self._count()
            state = {
                "identity": self._identity,
                "epoch": self.epoch,
                "batch": self.batch,
                "seconds": self.seconds,
                "skipped": int(self.skipped),
                "points": self.points,
                "curves": self.curves,
                "model": self.network.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "right": self.right.state_dict(),
                "chosen": self.chosen,
                "random": self._random(),
                "calls": [seen.calls for seen in self._observers],
            }
            save_atomically(state, self.checkpoint)

    @property
    def _identity(self) -> dict[str, Any]:
        return {"run": self.job.run.name, **self.job.identity}

    @property
    def _observers(self) -> list[Seen]:
        """What looks at the elements of a GenAgg every so many calls, for `explain`."""
        aggs = [agg for agg in self.network.aggregations if isinstance(agg, GenAgg)]
        return [agg.seen for agg in aggs if agg.seen is not None]

    def _random(self) -> list[Tensor]:
        on_gpu = self.fabric.device.type == "cuda"
        return [torch.get_rng_state(), *([torch.cuda.get_rng_state(self.fabric.device)] if on_gpu else [])]

    def _restore(self, state: dict[str, Any]) -> None:
        if state["identity"] != self._identity:
            return  # another run's
        self.network.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.right.load_state_dict(state["right"])
        self.right.to(self.fabric.device)  # it has taken over the checkpoint's own tensors, which lie on the CPU
        self.right._update_count = 1  # or torchmetrics warns that there is nothing to compute
        self.epoch, self.batch, self.seconds = state["epoch"], state["batch"], state["seconds"]
        self.skipped.fill_(state["skipped"])
        self.points, self.curves, self.chosen = state["points"], state["curves"], state["chosen"]
        for seen, calls in zip(self._observers, state["calls"], strict=True):
            seen.calls = calls
        torch.set_rng_state(state["random"][0])
        if len(state["random"]) > 1 and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(state["random"][1], self.fabric.device)

    def row(self) -> dict[str, Any]:
        """What the run came to.

        Where no epoch is chosen on validation, `train_accuracy` and `test_accuracy` are the maxima of their curves.
        """
        if not self.points:
            raise RuntimeError(f"{self.job.run.name} has not been tested yet")
        run, curves, best = self.job.run, self.curves, self.best
        found = {name: curve[best] if self.protocol.chosen else max(curve) for name, curve in curves.items()}
        self._choose()
        return {
            "dataset": run.dataset,
            "protocol": run.protocol,
            "aggregator": run.aggregator,
            "seed": run.seed,
            "share": run.share,
            "epochs": self.epoch,
            **{f"{name}_accuracy": round(found[name], 5) for name in ("train", "val", "test") if name in found},
            "epoch": self.points[best],
            "points": self.points,
            "curve": [round(value, 5) for value in curves["test"]],
            "train_curve": [round(value, 5) for value in curves["train"]],
            "parameters": sum(p.numel() for p in self.parameters),
            "seconds": round(self.seconds, 1),
            "skipped": int(self.skipped),
            "device": _device_name(self.fabric.device),
            "machine": machine(),
            "torch": torch.__version__,
            "settings": self.job.identity,
            "layers": layers_of(self.network),
        }

    def content(self) -> dict[str, Any]:
        """The network, as `save_model` writes it."""
        self._choose()
        run = self.job.run
        more = {"seed": run.seed, "share": run.share, "epochs": self.epoch, "training": self.job.identity}
        return model_content(self.network, run.dataset, run.protocol, **more)

    def _choose(self) -> None:
        """Goes back to the network of the epoch that was chosen; training is over then."""
        if self.chosen:
            self.network.load_state_dict(self.chosen)


def new_fabric(device: str, precision: str, devices: int = 1) -> Any:
    """A Fabric for one device, or for several of them, each in a process that `launch` starts."""
    from lightning_fabric import Fabric

    kind, _, number = device.partition(":")
    wanted: Any = [int(number)] if number else devices
    strategy = "ddp_spawn" if devices > 1 else "auto"
    return Fabric(accelerator=kind, devices=wanted, precision=precision, strategy=strategy)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
