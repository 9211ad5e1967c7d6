"""How sums and maxima over sets are computed."""

from .segments import Segments

__all__ = ["Segments"]
