import pytest
import torch

from fmean import STANDARD, standard
from fmean.experiments.graphs import random_graphs, standard_targets


def graphs(count=500, d=3, seed=0):
    return random_graphs(count, d, torch.Generator().manual_seed(seed))


def test_the_papers_graphs():
    drawn = graphs(4000, 1)
    a = drawn.adjacency
    assert (a == a.mT).all()
    assert not a.diagonal(dim1=1, dim2=2).any()
    assert a.any(2).all()  # every node has a neighbour
    assert a.float().mean().item() == pytest.approx(0.3, abs=0.015)  # |E| / |V|²
    assert drawn.features.mean().abs() < 0.02
    assert drawn.features.std().item() == pytest.approx(1, abs=0.02)


def test_edges_are_those_of_the_adjacency():
    drawn = graphs(5)
    source, index = drawn.edges
    dense = torch.zeros(40, 40, dtype=torch.bool)
    dense[index, source] = True
    assert torch.equal(dense, torch.block_diag(*drawn.adjacency.int()).bool())
    assert (index.diff() >= 0).all()
    assert torch.equal(drawn.x, drawn.features[source])


@pytest.mark.parametrize("name", STANDARD)
def test_targets_are_the_standard_aggregators(name):
    drawn = graphs()
    expected = standard(name)(drawn.x, drawn.index, dim_size=drawn.nodes)
    torch.testing.assert_close(standard_targets(drawn)[..., STANDARD.index(name)], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", STANDARD)
def test_a_feature_that_is_zero(name):
    drawn = graphs(50, 1)
    drawn.features[::5] = 0
    expected = standard(name)(drawn.x, drawn.index, dim_size=drawn.nodes)
    torch.testing.assert_close(standard_targets(drawn)[..., STANDARD.index(name)], expected, rtol=1e-5, atol=1e-5)
