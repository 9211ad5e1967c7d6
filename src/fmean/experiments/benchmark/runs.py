"""What a run of the benchmark is: which one, and with what settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .aggregators import AGGREGATORS
from .protocols import CITATION, DATASETS, PROTOCOLS

__all__ = ["Job", "Run", "Settings", "appendix", "grid"]

# The least that the paper's curves need to come to rest; a run may be asked for more.
EPOCHS = {"pattern": 60, "cluster": 60, "mnist": 20, "cifar10": 20, "cora": 200, "citeseer": 200, "pubmed": 200}
MOST_EPOCHS = 1000  # as many as the paper has


@dataclass(frozen=True)
class Run:
    """One training, of one network on one data set."""

    dataset: str
    protocol: str
    aggregator: str
    seed: int
    share: float = 1.0
    """Of the training graphs, how many are trained on."""

    def __post_init__(self) -> None:
        for name, known in (("dataset", DATASETS), ("protocol", PROTOCOLS), ("aggregator", AGGREGATORS)):
            if getattr(self, name) not in known:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}; known are {', '.join(known)}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {self.share}")
        if self.share < 1 and self.dataset in CITATION:
            raise ValueError(f"{self.dataset} is one graph: there is no share of its graphs to be taken")

    @property
    def name(self) -> str:
        """
        >>> Run("pattern", "paper", "mean", 0, 0.1).name
        'pattern-paper-mean-0-share0.1'
        """
        whole = f"{self.dataset}-{self.protocol}-{self.aggregator}-{self.seed}"
        return whole if self.share == 1 else f"{whole}-share{self.share:g}"

    @classmethod
    def of(cls, row: dict[str, Any]) -> Run:
        """The run that gave this row."""
        return cls(row["dataset"], row["protocol"], row["aggregator"], row["seed"], row["share"])


@dataclass(frozen=True)
class Settings:
    """How runs are done. None: what is usual for the data set or the protocol."""

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 1e-3
    factor: float = 1.0
    """The few parameters of an aggregation, of every one alike, learn so many times as fast as the network."""
    clip: float | None = None
    """The largest norm of a step's gradient: of a larger one only the direction counts. None: as large as it is."""
    hidden: int = 64
    layers: int = 4
    head: str = "wide"
    precision: str = "32-true"
    source: str = "made"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "hidden", "layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        for name in ("learning_rate", "factor"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be above 0, got {self.clip}")
        if self.clip is not None and self.precision == "16-mixed":
            raise ValueError("clip goes with precision 32-true or bf16-mixed: under 16-mixed gradients are scaled")
        for name, known in (("head", ("wide", "narrow")), ("precision", ("32-true", "bf16-mixed", "16-mixed"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Job:
    """A run with all its settings, as a worker gets it."""

    run: Run
    epochs: int
    every: int
    """After so many epochs the network is tested: with a share of the data an epoch is short."""
    batch_size: int
    settings: Settings

    @classmethod
    def of(cls, run: Run, settings: Settings) -> Job:
        """Unless epochs are given, a smaller share of the data gets more, so that the steps are as many; at most the
        paper's 1,000."""
        every = 1 if settings.epochs else max(1, round(1 / run.share))
        epochs = settings.epochs or min(EPOCHS[run.dataset] * every, MOST_EPOCHS)
        batch_size = 1 if run.dataset in CITATION else settings.batch_size or PROTOCOLS[run.protocol].batch_size
        return cls(run, epochs, every, batch_size, settings)

    @property
    def identity(self) -> dict[str, Any]:
        """What the result depends on. Where the learning rate stays as it is, more epochs continue fewer."""
        found = asdict(self.settings) | {"batch_size": self.batch_size, "every": self.every}
        del found["epochs"]
        if self.settings.clip is None:  # as before there was such a setting
            del found["clip"]
        if PROTOCOLS[self.run.protocol].schedule != "constant":
            found["epochs"] = self.epochs
        return found


def grid(
    datasets: tuple[str, ...],
    protocols: tuple[str, ...],
    aggregators: tuple[str, ...],
    seeds: int,
    shares: tuple[float, ...] = (1.0,),
) -> list[Run]:
    """All runs, seed after seed within a data set, so that a table of fewer seeds is complete early."""
    return [
        Run(dataset, protocol, aggregator, seed, share)
        for protocol in protocols
        for dataset in datasets
        for share in shares
        for seed in range(seeds)
        for aggregator in aggregators
    ]


def appendix(aggregators: tuple[str, ...], seeds: int) -> list[Run]:
    """The citation sets, and PATTERN with less of its data."""
    smaller = grid(("pattern",), ("paper",), aggregators, seeds, (1.0, 0.1, 0.01))
    return [*smaller, *grid(CITATION, ("paper",), aggregators, seeds)]
