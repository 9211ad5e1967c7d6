"""The data sets of the paper: random graphs, superpixel graphs, citation graphs; and a loader that keeps up.

>>> from fmean.data import Loader, load
>>> graphs = load("cluster", "val")
>>> batch = next(iter(Loader(graphs, batch_size=32, shuffle=True)))
>>> batch.x.shape[1], batch.graphs
(7, 32)
"""

from .blocks import Block, Blocks
from .graphs import GraphSet, from_data
from .loader import Batch, Loader
from .places import DamagedError, MissingError
from .sbm import cluster, pattern
from .sets import NAMES, SPLITS, State, build, load, remedy, states

__all__ = [
    "NAMES",
    "SPLITS",
    "Batch",
    "Block",
    "Blocks",
    "DamagedError",
    "GraphSet",
    "Loader",
    "MissingError",
    "State",
    "build",
    "cluster",
    "from_data",
    "load",
    "pattern",
    "remedy",
    "states",
]
