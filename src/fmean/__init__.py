r"""fmean: the generalised f-mean, a learnable aggregation for graph neural networks.

y = f⁻¹( n^(α−1) · Σ f(xᵢ − β·μ) )      f, α, β learned
"""

from . import functions, nn
from .aggregate import augmented_f_mean
from .checkpoint import load, save
from .distributive import distributive_operators
from .explain import History, explain, harden, report
from .genagg import GenAgg
from .standard import STANDARD, standard

__version__ = "0.1.0"

__all__ = [
    "STANDARD",
    "GenAgg",
    "History",
    "augmented_f_mean",
    "distributive_operators",
    "explain",
    "functions",
    "harden",
    "load",
    "nn",
    "report",
    "save",
    "standard",
]
