"""Layers that gather and aggregate in one step: PyG's own, without a message for every edge in memory."""

from .layers import GINConv, GraphConv, SAGEConv
from .swap import swap

__all__ = ["GINConv", "GraphConv", "SAGEConv", "swap"]
