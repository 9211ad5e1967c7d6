"""How an f-mean is computed over sets: in plain PyTorch, or fused."""

from .fused import fused_f_mean, plain
from .segments import Segments

__all__ = ["Segments", "fused_f_mean", "plain"]
