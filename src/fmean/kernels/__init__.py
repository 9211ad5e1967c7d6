"""How an f-mean is computed over sets: in plain PyTorch, or fused."""

from .csr import as_int64, extremes
from .fused import fused_f_mean, plain
from .segments import Segments

__all__ = ["Segments", "as_int64", "extremes", "fused_f_mean", "plain"]
