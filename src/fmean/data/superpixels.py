"""Images as graphs: superpixels are the nodes, each with edges to the 8 most similar by position."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .graphs import GraphSet, starts, targets
from .images import Images

__all__ = ["graphs_of", "neighbours", "superpixels"]

NEIGHBOURS = 8
Floats = npt.NDArray[np.float32]


@lru_cache
def _calls(side: int, asked: int) -> list[dict[str, Any]]:
    """The arguments of SLIC for `asked` segments, one less, and so on; those that would give the same are left out.

    The published sets were cut by scikit-image 0.16. It took the mean size of a segment as pixels / n_segments; later
    versions take it as pixels / c, with c the number of grid centres: the factors c / n_segments undo that.
    """
    from skimage.util import regular_grid

    calls: dict[tuple[int, int, int], dict[str, Any]] = {}
    for n_segments in range(asked, 0, -1):
        c = int(np.ones((1, side, side), bool)[regular_grid((1, side, side), n_segments)].sum())
        alike = c, side**2 // (2 * n_segments), 3 * side**2 // n_segments
        calls.setdefault(
            alike,
            {
                "n_segments": n_segments,
                "min_size_factor": 0.5 * c / n_segments + 1e-9,  # against rounding down
                "max_size_factor": 3.0 * c / n_segments + 1e-9,
            },
        )
    return list(calls.values())


def superpixels(image: npt.NDArray[np.uint8], of: Images) -> tuple[Floats, Floats]:
    """Mean colour [n, channels] and centre of mass [n, 2], (row, column) / side, of an image's superpixels.

    They come in SLIC's own order. (The published sets have them in a random one: it means nothing.)
    """
    from skimage.color import rgb2lab
    from skimage.segmentation import slic

    colour = (image / np.float32(255)).astype(np.float32)
    seen = colour.astype(np.float64)
    seen = seen[..., 0] if of.channels == 1 else rgb2lab(seen)
    # scikit-image 0.19 and later rescale by this; a compactness divided by it undoes that
    spread = float(seen.max() - seen.min()) or 1.0
    fixed = {
        "compactness": of.compactness / spread,
        "convert2lab": False,
        "start_label": 0,
        "channel_axis": None if of.channels == 1 else -1,
    }
    for arguments in _calls(of.side, of.asked):
        label = slic(seen, **fixed, **arguments).ravel()
        if label.max() < of.most:
            break
    count = np.bincount(label)
    row, column = np.divmod(np.arange(of.side**2), of.side)
    values = [*colour.reshape(-1, of.channels).T, row, column]
    sums = np.stack([np.bincount(label, value) for value in values], 1)
    means = (sums / count[:, None]).astype(np.float32)
    return means[:, :-2], means[:, -2:] / np.float32(of.side)


def neighbours(pos: Tensor, node_ptr: Tensor, k: int = NEIGHBOURS) -> tuple[Tensor, Tensor]:
    """The edges of superpixel graphs: from each node i to those j with the k largest A_ij.

    a_ij = exp(−(d_ij / σ_i)²),  A = (a + aᵀ) / 2,  σ_i the mean distance from i to its k nearest

    The program behind the published sets leaves out one of the k + 1 largest, and which one hangs on its NumPy; this
    takes the k largest, and of equal ones the first.

    Arguments:
        pos: Positions [N, 2].
        node_ptr: Where each graph begins [G + 1].

    Returns:
        Sources of the edges, in order of target, numbered within their graph [E]; in-degrees of the nodes [N].

    >>> line = torch.tensor([[0.0, 0.0], [0.1, 0.0], [0.3, 0.0], [0.7, 0.0]])
    >>> neighbours(line, torch.tensor([0, 4]), k=1)
    (tensor([1, 0, 2, 3], dtype=torch.int16), tensor([1, 2, 1, 0]))
    """
    size = node_ptr.diff()
    here = torch.arange(int(size.max())) < size[:, None]  # [G, n], as all graphs are padded to n nodes
    padded = torch.zeros(*here.shape, 2, dtype=torch.float64)
    padded[here] = pos.double()
    both = here[:, :, None] & here[:, None, :]
    d = torch.cdist(padded, padded, compute_mode="donot_use_mm_for_euclid_dist").masked_fill(~both, torch.inf)
    nearest = d.sort(-1).values[..., : k + 1]
    sigma = nearest.where(nearest.isfinite(), 0.0).sum(-1, keepdim=True) / k + 1e-8
    a = torch.exp(-((d / sigma) ** 2))
    similar = ((a + a.mT) / 2).masked_fill(~both, -1.0)
    similar.diagonal(dim1=1, dim2=2).fill_(-1.0)
    value, found = similar.sort(stable=True, dim=-1, descending=True)
    linked = torch.zeros_like(both).scatter_(2, found[..., :k], value[..., :k] >= 0)
    by_target = linked.mT  # [G, target, source]
    return by_target.nonzero()[:, 2].to(torch.int16), by_target.sum(-1)[here]


def graphs_of(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], of: Images) -> GraphSet:
    """The graphs of some images; colours and positions are rounded to half precision, as in the published sets."""
    cut = [superpixels(image, of) for image in images]
    node_ptr = starts(torch.tensor([len(colour) for colour, _ in cut]))
    pos = torch.from_numpy(np.concatenate([centre for _, centre in cut]))
    source, degree = neighbours(pos, node_ptr)
    edges_before = starts(degree)
    return GraphSet(
        x=torch.from_numpy(np.concatenate([colour for colour, _ in cut])).half().float(),
        edge_index=torch.stack([source, targets(degree, node_ptr)], 1).t(),
        y=torch.from_numpy(labels.astype(np.int64)),
        node_ptr=node_ptr,
        edge_ptr=edges_before[node_ptr],
        pos=pos.half().float(),
        task="graph",
        classes=10,
        name=of.name,
    )
