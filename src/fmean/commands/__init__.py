"""The commands behind `fmean`, with what they show: one in each file."""

from . import bench, benchmark, data, figures, harden, learn, report, reproduce
from .base import app

__all__ = ["app", "bench", "benchmark", "data", "figures", "harden", "learn", "report", "reproduce"]
