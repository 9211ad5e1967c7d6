"""The paper's "Aggregator Regression" and "GNN Regression": one method learns all 13 standard aggregators at once.

Every target is an entry of the last dimension (see `stacks`), with parameters of its own and the same graphs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import load_or_set_aside, save_atomically
from ..functions import InvertibleNN, Mixture, MLPAutoencoder, Sinh
from ..genagg import GenAgg
from ..standard import STANDARD
from .baselines import Mean, PowerMean, Softmax
from .graphs import Graphs, random_graphs, standard_targets
from .learn import correlation
from .stacks import GNN, Aggregator, Make, Stack, restrain

__all__ = ["EXPERIMENTS", "METHODS", "USUAL", "Experiment", "Learner", "Method", "Settings", "draw"]


@dataclass(frozen=True)
class Method:
    """How an aggregation is made, and how it learns."""

    make: Make
    baseline: bool = False
    """Whether it is one of PyG's, which have no random start and hence, outside of a GNN, nothing to choose from."""
    extra: bool = False
    """Whether it is run only where it is asked for by its name."""


def _invertible(channels: int) -> GenAgg:
    """Of x and of log|x|, since an increasing f of x alone cannot become an aggregator of magnitudes."""
    parts = [InvertibleNN(2, magnitude, channels) for magnitude in (False, True)]
    return GenAgg(Mixture(parts, channels), channels=channels)


METHODS: dict[str, Method] = {
    "genagg-sinh": Method(lambda channels: GenAgg(Sinh(channels), channels=channels)),
    "genagg-mlp": Method(lambda channels: GenAgg(MLPAutoencoder(channels=channels), channels=channels)),
    "genagg-invertible": Method(_invertible),
    "power": Method(PowerMean, baseline=True),
    "softmax": Method(Softmax, baseline=True),
    "mean": Method(Mean, baseline=True),
    # f: R → R, the form that the paper calls the most human-interpretable.
    "genagg-mlp-scalar": Method(
        lambda channels: GenAgg(MLPAutoencoder([1, 2, 2, 1], channels=channels), channels=channels), extra=True
    ),
}
USUAL = tuple(name for name, method in METHODS.items() if not method.extra)


@dataclass(frozen=True)
class Experiment:
    title: str
    about: str
    model: Callable[[Make, int], Stack]
    d: int
    random: bool
    """Whether the model has a random start beside that of its aggregation."""

    def learning_rate(self, method: Method, share: float) -> float:
        """For Adam, after this share of all steps: from 0.02 down to 0 along a cosine.

        Where baselines are to give the paper's own figures, they have the paper's own, 0.001 throughout.
        """
        if method.baseline and not self.random:
            return 1e-3
        return 0.02 * (1 + math.cos(math.pi * share)) / 2


EXPERIMENTS: dict[str, Experiment] = {
    "regression": Experiment(
        "Aggregator Regression",
        "Aggregator Regression: each method learns the 13 standard aggregators.",
        Aggregator,
        6,
        random=False,
    ),
    "gnn-regression": Experiment(
        "GNN Regression",
        "GNN Regression: so does a GNN of four GraphConv layers, with each method in all of them.",
        GNN,
        1,
        random=True,
    ),
}


@dataclass(frozen=True)
class Settings:
    """What fixes a run: two runs with the same settings give the same table."""

    experiment: str
    steps: int = 10_000
    graphs: int = 1024
    trials: int = 10
    starts: int = 16
    """A trial begins from so many starts. The best of them, after a short time of trying, is trained."""
    tries: int = 500
    """The steps of that time, each with 1/starts of the graphs."""
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device must be cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, but torch finds no CUDA device here")
        if self.experiment not in EXPERIMENTS:
            raise ValueError(f"unknown experiment {self.experiment!r}; known are {', '.join(EXPERIMENTS)}")
        for name in ("steps", "graphs", "trials", "starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")

    @property
    def identity(self) -> dict[str, Any]:
        """What the result of a trial depends on: more trials leave those that are there as they are."""
        return {name: value for name, value in asdict(self).items() if name != "trials"}

    @property
    def points(self) -> list[int]:
        """The steps at which the training curve has a point."""
        return [round(self.steps * i / 50) for i in range(1, 51)] if self.steps >= 50 else [*range(1, self.steps + 1)]


def draw(settings: Settings, trial: int, step: int) -> tuple[Graphs, Tensor]:
    """The graphs of a step, fresh at every step and trial and the same for all methods, with the 13 targets."""
    seed = (settings.seed * 1000 + trial) * 1_000_000 + settings.tries + step
    generator = torch.Generator(settings.device).manual_seed(seed)
    count = settings.graphs if step >= 0 else max(1, settings.graphs // settings.starts)
    graphs = random_graphs(count, EXPERIMENTS[settings.experiment].d, generator)
    return graphs, standard_targets(graphs)


class Learner:
    """One method in one trial: 13 models, one for each target, trained side by side.

    Steps below 0 are those of trying: 13 × starts models. From step 0 on it is the best of each target.

    Arguments:
        checkpoint: The file that keeps the state; None: keep nothing.
    """

    def __init__(self, settings: Settings, method: str, trial: int, checkpoint: Path | None = None) -> None:
        self.settings, self.method, self.trial = settings, METHODS[method], trial
        self.name, self.checkpoint = method, checkpoint
        self.experiment = EXPERIMENTS[settings.experiment]
        self._begin()
        if checkpoint is not None:
            self._resume(checkpoint)

    @property
    def done(self) -> bool:
        return self.step >= self.settings.steps

    def _begin(self) -> None:
        self.seconds, self.curve = 0.0, []
        random = self.experiment.random or not self.method.baseline
        self._build(-self.settings.tries if random and self.settings.starts > 1 else 0)
        if not list(self.model.parameters()):  # nothing to learn
            self._build(self.settings.steps)

    curve: list[list[float]]

    def _build(self, step: int) -> None:
        """The models as they are at a step, with a start that the seed, method and trial fix."""
        self.step, self.starts = step, self.settings.starts if step < 0 else 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.settings.seed * 1000 + self.trial) * 100 + list(METHODS).index(self.name))
            self.model = self.experiment.model(self.method.make, len(STANDARD) * self.starts)
            self.model.to(self.settings.device)
        on_gpu = self.settings.device == "cuda"
        self.losses = torch.compile(self.model.losses, dynamic=True) if on_gpu else self.model.losses
        self.tried = torch.zeros(len(STANDARD), self.starts, device=self.settings.device)
        parameters = list(self.model.parameters())
        self.optimiser = torch.optim.Adam(parameters, fused=True) if parameters else None

    def update(self, graphs: Graphs, y: Tensor) -> None:
        """One step of Adam on the mean squared error of each model."""
        began = time.monotonic()
        optimiser = self.optimiser
        assert optimiser is not None
        rate = self.experiment.learning_rate(self.method, max(0, self.step) / self.settings.steps)
        optimiser.param_groups[0]["lr"] = rate
        if self.starts > 1:
            y = y.repeat_interleave(self.starts, -1)
        losses, y_hat = self.losses(graphs, y)
        optimiser.zero_grad()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        for parameter in self.model.parameters():
            # The gradient of one model may be huge where f⁻¹ is steep, or not be finite, which counts as 0.
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0).clamp_(-1.0, 1.0)
        optimiser.step()
        restrain(self.model, 4 * rate)
        self.step += 1
        if self.step <= 0:
            loss = losses.detach().nan_to_num(1e30, 1e30).clamp_max(1e30).view_as(self.tried)
            self.tried += (loss - self.tried) / 50  # that of the last steps or so
            if self.step == 0:
                self._choose()
        elif self.step in self.settings.points:
            with torch.no_grad():
                y_hat = self.model(graphs) if y_hat is None else y_hat.detach()
            self.curve.append(correlation(y_hat, y).tolist())
        self.seconds += time.monotonic() - began

    def _choose(self) -> None:
        """Goes on with the best start of each target."""
        tried, best = self.model, self.tried.argmin(-1)
        self._build(0)
        self.model.take(tried, torch.arange(len(STANDARD), device=best.device) * self.settings.starts + best)

    @torch.no_grad()
    def rows(self) -> list[dict[str, Any]]:
        """How well each target was learned, on graphs that were not seen in training."""
        self.model.eval()
        graphs, y = draw(replace(self.settings, graphs=4096, tries=500), 999, 0)
        y_hat = self.model(graphs)
        found, errors = correlation(y_hat, y).tolist(), (y_hat - y).square().mean((0, 1)).tolist()
        return [
            {
                "target": target,
                "method": self.name,
                "trial": self.trial,
                "correlation": _finite(found[i], 5),
                "mse": _finite(errors[i], 6),
                "alpha": self._numbers("alpha", i),
                "beta": self._numbers("beta", i),
                "parameter": self._numbers("value", i),
                "seconds": round(self.seconds / len(STANDARD), 2),
                "curve": [_finite(point[i], 4) for point in self.curve],
            }
            for i, target in enumerate(STANDARD)
        ]

    def _numbers(self, name: str, i: int) -> Any:
        """α, β, or a baseline's parameter, of each layer where there are several; None where there is none."""
        found = [getattr(layer, name)[i].flatten().tolist() for layer in self.model.layers if hasattr(layer, name)]
        found = [[_finite(v, 4) for v in one] for one in found]
        found = [one[0] if len(one) == 1 else one for one in found]
        return (found[0] if len(found) == 1 else found) if found else None

    def save(self) -> None:
        if self.checkpoint is not None and self.optimiser is not None:
            state = {
                "settings": self._identity,
                "step": self.step,
                "seconds": self.seconds,
                "curve": self.curve,
                "model": self.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "tried": self.tried,
            }
            save_atomically(state, self.checkpoint)

    @property
    def _identity(self) -> dict[str, Any]:
        return self.settings.identity | {"method": self.name, "trial": self.trial}

    def _resume(self, checkpoint: Path) -> None:
        def restore(state: dict[str, Any]) -> None:
            if state["settings"] != self._identity:
                return  # another run's
            self._build(state["step"])
            self.model.load_state_dict(state["model"])
            assert self.optimiser is not None
            self.optimiser.load_state_dict(state["optimiser"])
            self.tried.copy_(state["tried"])
            self.seconds, self.curve = state["seconds"], state["curve"]

        if not load_or_set_aside(checkpoint, restore):
            self._begin()


def _finite(value: float, digits: int) -> float | None:
    """For JSON, which knows no NaN."""
    return round(value, digits) if math.isfinite(value) else None
