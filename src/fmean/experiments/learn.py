"""`fmean learn`: teaches GenAgg the standard aggregators, as in the paper's Aggregator Regression.

All targets and starts are trained at once, as the features of one GenAgg that holds its parameters per feature:
every feature sees the same sets and has a target of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..checkpoint import load_or_set_aside, save_atomically
from ..explain import explain
from ..functions import InvertibleNN, MLPAutoencoder, ScalarFunction, Sinh
from ..genagg import GenAgg
from ..standard import STANDARD
from .graphs import Graphs, random_graphs, standard_targets
from .paper import CORRELATION

__all__ = ["PAPER", "Learned", "Learner", "Settings", "correlation"]

PAPER = {target: row["genagg"] for target, row in CORRELATION["regression"].items()}

# f as it is learned, and from how many starts. Several are trained side by side and the best one is kept: a network
# can get stuck. An invertible f on x cannot become one on |x|, so half of its starts are of either kind.
MODELS: dict[str, tuple[int, list[Callable[[int], ScalarFunction]]]] = {
    "sinh": (2, [Sinh]),
    "mlp": (8, [lambda channels: MLPAutoencoder(channels=channels)]),
    "invertible": (
        2,
        [
            lambda channels: InvertibleNN(channels=channels),
            lambda channels: InvertibleNN(magnitude=True, channels=channels),
        ],
    ),
}


@dataclass(frozen=True)
class Settings:
    """What fixes a run: two runs with the same settings learn the same."""

    targets: tuple[str, ...] = STANDARD
    f: str = "sinh"
    steps: int = 3000
    graphs: int = 16
    d: int = 6
    learning_rate: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        unknown = [target for target in self.targets if target not in STANDARD]
        if unknown:
            raise ValueError(f"unknown target {', '.join(unknown)}; the 13 are {', '.join(STANDARD)}")
        if self.f not in MODELS:
            raise ValueError(f"unknown f {self.f!r}; known are {', '.join(MODELS)}")
        if self.steps < 1:
            raise ValueError(f"steps must be 1 or more, got {self.steps}")


@dataclass(frozen=True)
class Learned:
    """An aggregation that was taught a target, and how well it took it."""

    target: str
    agg: GenAgg
    correlation: float
    mse: float
    nearest: tuple[tuple[str, float], ...]
    """All standard aggregators by correlation with this one, best first, as `explain` finds them."""

    def row(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "correlation": round(self.correlation, 5),
            "paper": PAPER[self.target],
            "mse": round(self.mse, 6),
            "alpha": self.agg.alpha.tolist(),
            "beta": self.agg.beta.tolist(),
            "formula": self.agg.f.formula,
            "nearest": self.nearest[0][0],
        }


class Learner:
    """Trains GenAgg on every target at once, and goes on where an earlier run was stopped.

    Arguments:
        settings: What to learn.
        checkpoint: The file that keeps the state of training; None: keep nothing.
    """

    def __init__(self, settings: Settings, checkpoint: Path | None = None) -> None:
        self.settings = settings
        self.checkpoint = checkpoint
        self._begin()
        if checkpoint is not None:
            self._resume(checkpoint)

    def _begin(self) -> None:
        self.starts, kinds = MODELS[self.settings.f]
        self.step = 0
        self.seconds = 0.0
        channels = len(self.settings.targets) * self.starts
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            self.models = [GenAgg(kind(channels), channels=channels) for kind in kinds]
        self._all = torch.nn.ModuleList(self.models)
        self.optimiser = torch.optim.Adam(self._all.parameters(), lr=self.settings.learning_rate)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, self.settings.steps)

    def train(self) -> Iterator[float]:
        """Takes the steps that are left; after each, the worst correlation among the targets, for a display."""
        began, saved = time.monotonic() - self.seconds, time.monotonic()
        try:
            while self.step < self.settings.steps:
                # Fresh data at every step, the same in every run: nothing of it needs to be kept.
                sets = self._sets(self.settings.graphs, 1 + self.step)
                y, y_hat = self._targets(sets), self._outputs(sets)
                loss = (y_hat - y.unsqueeze(-1)).square().mean((0, 1))
                self.optimiser.zero_grad()
                loss.sum().backward()  # type: ignore[no-untyped-call]
                # A feature's gradient may be huge where f⁻¹ is steep; it must not throw the others' starts away.
                torch.nn.utils.clip_grad_value_(self._all.parameters(), 1.0)
                self.optimiser.step()
                self.schedule.step()
                self.step += 1
                self.seconds = time.monotonic() - began
                yield correlation(y_hat.detach(), y.unsqueeze(-1)).amax(-1).min().item()
                if time.monotonic() - saved > 5:
                    self._save()
                    saved = time.monotonic()
        finally:
            self._save()

    @torch.no_grad()
    def result(self) -> list[Learned]:
        """Every target's best start, judged on sets that were not seen in training."""
        self._all.eval()
        choice, test = self._sets(1000, -1), self._sets(4000, -2)
        mse = (self._outputs(choice) - self._targets(choice).unsqueeze(-1)).square().mean((0, 1))
        best = mse.nan_to_num(torch.inf).argmin(-1).tolist()
        learned = []
        y = self._targets(test, STANDARD)
        for i, target in enumerate(self.settings.targets):
            model, start = divmod(best[i], self.starts)
            agg = self.models[model].feature(i * self.starts + start)
            y_hat = agg(test.x, test.index, dim_size=test.nodes)
            true = y[..., STANDARD.index(target)]
            found, error = correlation(y_hat, true).item(), (y_hat - true).square().mean().item()
            learned.append(Learned(target, agg, found, error, tuple(explain(agg).nearest)))
        self._all.train()
        return learned

    def _sets(self, graphs: int, number: int) -> Graphs:
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + number)
        return random_graphs(graphs, self.settings.d, generator)

    def _targets(self, sets: Graphs, names: tuple[str, ...] | None = None) -> Tensor:
        """``[nodes, d, targets]``"""
        return standard_targets(sets)[..., [STANDARD.index(name) for name in names or self.settings.targets]]

    def _outputs(self, sets: Graphs) -> Tensor:
        """``[nodes, d, targets, starts of all models]``"""
        x = sets.x.unsqueeze(-1).expand(-1, -1, self.models[0].channels)
        y = [model(x, sets.index, dim_size=sets.nodes, dim=0) for model in self.models]
        return torch.cat([v.view(*v.shape[:-1], -1, self.starts) for v in y], -1)

    def _save(self) -> None:
        if self.checkpoint is not None:
            state = {
                "settings": asdict(self.settings),
                "step": self.step,
                "seconds": self.seconds,
                "models": self._all.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "schedule": self.schedule.state_dict(),
            }
            save_atomically(state, self.checkpoint)

    def _resume(self, checkpoint: Path) -> None:
        def restore(state: dict[str, Any]) -> None:
            if state["settings"] != asdict(self.settings):
                return  # another run's
            self._all.load_state_dict(state["models"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.schedule.load_state_dict(state["schedule"])
            self.step, self.seconds = state["step"], state["seconds"]

        if not load_or_set_aside(checkpoint, restore):
            self._begin()


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Pearson's correlation over the first two dimensions: ``[nodes, d, ...]`` → ``[...]``."""
    a, b = a.flatten(0, 1), b.flatten(0, 1)
    a, b = a - a.mean(0), b - b.mean(0)
    return (a * b).sum(0) / (a.square().sum(0) * b.square().sum(0)).sqrt().clamp_min(1e-30)
