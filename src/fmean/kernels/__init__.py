"""How an f-mean is computed over sets: in plain PyTorch, or fused."""

from .csr import as_int64, csr_of_edges, extremes
from .fused import fused_f_mean, fused_terms, plain
from .segments import Segments
from .squares import fused_squares, squares_of_terms

__all__ = [
    "Segments",
    "as_int64",
    "csr_of_edges",
    "extremes",
    "fused_f_mean",
    "fused_squares",
    "fused_terms",
    "plain",
    "squares_of_terms",
]
