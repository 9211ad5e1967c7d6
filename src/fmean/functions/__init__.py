"""The functions f of the f-mean: one in each file, with its inverse."""

from __future__ import annotations

import math
from collections.abc import Callable

from .base import ScalarFunction
from .exp import Exp
from .identity import Identity
from .invertible import InvertibleNN
from .log_abs import LogAbs
from .mixture import Mixture
from .mlp import MLPAutoencoder
from .power import Power
from .sigmoid import Sigmoid
from .sinh import Magnitude, Sinh, SinhLinear, SinhLog
from .tanh import Tanh

__all__ = [
    "LEARNABLE",
    "SYMBOLIC",
    "Exp",
    "Identity",
    "InvertibleNN",
    "LogAbs",
    "MLPAutoencoder",
    "Magnitude",
    "Mixture",
    "Power",
    "ScalarFunction",
    "Sigmoid",
    "Sinh",
    "SinhLinear",
    "SinhLog",
    "Tanh",
    "function",
]

LEARNABLE: dict[str, Callable[..., ScalarFunction]] = {
    "sinh": Sinh,
    "mlp": MLPAutoencoder,
    "invertible": InvertibleNN,
}

# The f of each standard aggregator, in the order of the paper's table.
SYMBOLIC: dict[str, Callable[[], ScalarFunction]] = {
    "mean": Identity,
    "sum": Identity,
    "product": LogAbs,
    "min_magnitude": lambda: Power(-math.inf),
    "max_magnitude": lambda: Power(math.inf),
    "min": lambda: Exp(-math.inf),
    "max": lambda: Exp(math.inf),
    "harmonic_mean": lambda: Power(-1),
    "geometric_mean": LogAbs,
    "root_mean_square": lambda: Power(2),
    "euclidean_norm": lambda: Power(2),
    "standard_deviation": lambda: Power(2),
    "log_sum_exp": Exp,
}


def function(name: str, channels: int = 1) -> ScalarFunction:
    """A new f by its name: a key of `LEARNABLE` or `SYMBOLIC`.

    >>> function("harmonic_mean")
    Power(p=-1)
    """
    if name in LEARNABLE:
        return LEARNABLE[name](channels=channels)
    if name in SYMBOLIC:
        return SYMBOLIC[name]()
    raise ValueError(f"unknown f {name!r}; known are {', '.join([*LEARNABLE, *SYMBOLIC])}")
