"""The commands behind `fmean`, with what they show: one in each file."""

from . import bench, learn, reproduce
from .base import app

__all__ = ["app", "bench", "learn", "reproduce"]
