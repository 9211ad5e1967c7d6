"""The paper's "GNN Benchmark": a 4-layer GraphConv with each aggregation, on real data and the benchmark's own.

`python -m fmean.experiments.benchmark` does what `fmean reproduce benchmark` does, without typer and rich.
"""

from .evaluation import accuracy, answer
from .models import Network, load_model, save_model

__all__ = ["Network", "accuracy", "answer", "load_model", "save_model"]
