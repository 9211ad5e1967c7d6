"""How an f-mean is computed over sets: in plain PyTorch, or fused."""

from .csr import BlockCSR, as_int64, csr_of_edges, extremes, supply
from .fused import HAS_TRITON, fused_f_mean, fused_terms, plain
from .segments import Segments
from .squares import fused_squares, squares_of_terms

__all__ = [
    "HAS_TRITON",
    "BlockCSR",
    "Segments",
    "as_int64",
    "csr_of_edges",
    "extremes",
    "fused_f_mean",
    "fused_squares",
    "fused_terms",
    "plain",
    "squares_of_terms",
    "supply",
]
