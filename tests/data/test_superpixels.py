from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from fmean.data.images import IMAGES
from fmean.data.superpixels import graphs_of, neighbours, superpixels

from .samples import REAL

# First graph of val, train and test; range and mean over all of val and test, as the published sets have them.
KNOWN = {"mnist": ((71, 69, 74), (42, 75), 70.6), "cifar10": ((123, 110, 118), (94, 145), 117.6)}


def brute(pos, k=8):
    """The recipe, node by node."""
    pos = pos.double().numpy()
    d = np.sqrt(((pos[:, None] - pos[None]) ** 2).sum(-1))
    sigma = np.sort(d, 1)[:, : k + 1].sum(1) / k + 1e-8
    a = np.exp(-((d / sigma[:, None]) ** 2))
    similar = (a + a.T) / 2
    np.fill_diagonal(similar, -1)
    return {(i, j) for i in range(len(pos)) for j in np.argsort(-similar[i], kind="stable")[: min(k, len(pos) - 1)]}


def test_neighbours_by_the_recipe():
    sizes = torch.tensor([40, 9, 1, 75, 5])
    node_ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    pos = torch.rand(int(node_ptr[-1]), 2)
    source, degree = neighbours(pos, node_ptr)
    target = torch.cat([torch.arange(n) for n in sizes]).repeat_interleave(degree)
    edges = 0
    for first, last in pairwise(node_ptr):
        expected = brute(pos[first:last])
        count = int(degree[first:last].sum())
        found = set(zip(source[edges : edges + count].tolist(), target[edges : edges + count].tolist(), strict=True))
        assert found == expected
        assert len(found) == count
        edges += count
    assert edges == len(source)


@pytest.mark.parametrize("name", KNOWN)
def test_an_image_of_one_colour(name):
    of = IMAGES[name]
    colour, centre = superpixels(np.full((of.side, of.side, of.channels), 51, np.uint8), of)
    assert len(colour) <= of.most
    np.testing.assert_allclose(colour, 0.2, rtol=1e-6)
    assert centre.min() >= 0
    assert centre.max() < 1


@pytest.mark.skipif(not REAL.exists(), reason=f"no original images in {REAL}")
@pytest.mark.parametrize("name", KNOWN)
def test_as_published(name):
    first, (least, most), mean = KNOWN[name]
    of = IMAGES[name]
    of = replace(of, files={part: files[:2] if name == "mnist" else files[:1] for part, files in of.files.items()})
    images = of.splits(REAL, ["val", "train", "test"])
    sets = [graphs_of(pixels[:60], labels[:60], of) for pixels, labels in images.values()]
    assert tuple(int(graphs.node_ptr[1]) for graphs in sets) == first
    for graphs in sets:
        nodes = graphs.node_ptr.diff()
        assert least <= nodes.min() < nodes.max() <= most
        assert abs(nodes.double().mean() - mean) < 2.5
        assert torch.equal(graphs.edge_ptr.diff(), 8 * nodes)
        assert graphs.x.shape[1] == of.channels
        assert graphs.x.min() >= 0
        assert graphs.x.max() <= 1
        assert graphs.pos.min() >= 0
        assert graphs.pos.max() < 1
        out = torch.bincount(graphs.edge_index[0, : 8 * nodes[0]].long())
        assert out.tolist() == [8] * int(nodes[0])
    # superpixels partition the image: a test of means and labels against the pixels
    pixels, labels = images["val"]
    assert sets[0].y.tolist() == labels[:60].tolist()
    assert abs(sets[0].x.mean() - pixels[:60].mean() / 255) < 0.05
