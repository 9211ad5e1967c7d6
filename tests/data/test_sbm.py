import pytest
import torch

from fmean.data import cluster, pattern

from .samples import same

MAKE = {"pattern": pattern, "cluster": cluster}


def dense(graphs, i):
    """Adjacency [n, n] of graph i."""
    data = graphs.graph(i)
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    assert int(adjacency.sum()) == data.num_edges  # no edge twice
    return data, adjacency


@pytest.mark.parametrize("name", MAKE)
def test_simple_graphs(name):
    graphs = MAKE[name]("test", graphs=30)
    for i in range(30):
        data, adjacency = dense(graphs, i)
        assert torch.equal(adjacency, adjacency.t())
        assert adjacency.diagonal().sum() == 0
        assert (data.edge_index[1].diff() >= 0).all()
        assert torch.equal(data.x.sum(1), torch.ones(data.num_nodes))


@pytest.mark.parametrize("name", MAKE)
def test_seeds(name):
    same(MAKE[name]("val", seed=4, graphs=50), MAKE[name]("val", seed=4, graphs=50))
    a, b, c = MAKE[name]("val", 4, 50), MAKE[name]("val", 5, 50), MAKE[name]("test", 4, 50)
    assert not torch.equal(a.node_ptr, b.node_ptr)
    assert not torch.equal(a.node_ptr, c.node_ptr)


@pytest.mark.parametrize("name", MAKE)
def test_fewer_are_the_first(name):
    """Whole groups come out the same, however many follow."""
    few, many = MAKE[name]("val", graphs=100), MAKE[name]("val", graphs=200)
    same(few, many.select(torch.arange(100)))


def test_statistics_of_pattern():
    graphs = pattern("val")  # 2,000
    nodes, edges = graphs.node_ptr.diff().double(), graphs.edge_ptr.diff().double()
    assert 30 <= nodes.min() < nodes.max() <= 204
    assert abs(nodes.mean() - 117) < 4  # 100 pattern sizes of standard deviation 8.7, and the blocks' own
    assert 5500 < edges.mean() < 6350
    assert 0.80 < (graphs.y == 0).double().mean() < 0.86
    for label in (0, 1):
        shares = graphs.x[graphs.y == label].mean(0)
        assert (shares - 1 / 3).abs().max() < (0.01, 0.06)[label]


def test_chances_of_pattern():
    graphs = pattern("train", graphs=200)
    linked = {key: [] for key in ("between", "background")}
    for i in range(200):
        data, adjacency = dense(graphs, i)
        inside = data.y == 1
        linked["between"].append(adjacency[inside][:, ~inside].flatten())
        linked["background"].append(adjacency[~inside][:, ~inside].flatten())
    assert abs(torch.cat(linked["between"]).mean() - 0.5) < 0.01
    # 5 blocks of mean size 19.5 and variance 74.9: E[Σs²] / E[(Σs)²] of the pairs lie within a block
    within = (5 * (19.5**2 + 74.9)) / (5 * 74.9 + (5 * 19.5) ** 2)
    assert abs(torch.cat(linked["background"]).mean() - (0.35 + 0.15 * within)) < 0.02


def test_a_pattern_is_shared_by_its_group_in_every_split():
    """Inside, the same nodes: features and degrees within the pattern, in whatever order."""

    def signature(graphs, i):
        data, adjacency = dense(graphs, i)
        inside = data.y == 1
        degree = adjacency[inside][:, inside].sum(1)
        return sorted(zip(data.x[inside].argmax(1).tolist(), degree.tolist(), strict=True))

    train, val = pattern("train", graphs=200), pattern("val", graphs=40)
    groups = [{str(signature(train, i)) for i in range(first, first + 100)} for first in (0, 100)]
    assert [len(group) for group in groups] == [1, 1]
    assert groups[0] != groups[1]
    assert [{str(signature(val, i)) for i in range(first, first + 20)} for first in (0, 20)] == groups


def test_statistics_of_cluster():
    graphs = cluster("val")  # 1,000
    nodes, edges = graphs.node_ptr.diff().double(), graphs.edge_ptr.diff().double()
    assert 30 <= nodes.min() < nodes.max() <= 204
    assert abs(nodes.mean() - 117) < 3
    assert 4150 < edges.mean() < 4500
    assert (graphs.y.bincount() / len(graphs.y) - 1 / 6).abs().max() < 0.01


def test_chances_and_features_of_cluster():
    graphs = cluster("test", graphs=100)
    within, across = [], []
    for i in range(100):
        data, adjacency = dense(graphs, i)
        alike = data.y[:, None] == data.y
        within.append(adjacency[alike & ~torch.eye(len(alike), dtype=torch.bool)])
        across.append(adjacency[~alike])
        told = data.x.argmax(1)
        assert told[told > 0].sort().values.tolist() == [1, 2, 3, 4, 5, 6]
        assert torch.equal(data.y[told > 0], told[told > 0] - 1)
        assert set(data.y.bincount().tolist()) <= set(range(5, 35))
    assert abs(torch.cat(within).mean() - 0.55) < 0.01
    assert abs(torch.cat(across).mean() - 0.25) < 0.01


def test_nodes_are_in_random_order():
    """The nodes that tell their block are anywhere in it, and labels of neighbours in number do not agree."""
    graphs = cluster("test", graphs=200)
    agree = [(data.y[1:] == data.y[:-1]).float().mean() for data in map(graphs.graph, range(200))]
    assert abs(torch.stack(agree).mean() - 0.19) < 0.03
    place = [data.x[:, 0].lt(1).nonzero().float().mean() / data.num_nodes for data in map(graphs.graph, range(200))]
    assert abs(torch.stack(place).mean() - 0.5) < 0.03


@pytest.mark.parametrize("name", MAKE)
def test_bad_arguments(name):
    with pytest.raises(ValueError, match="split is one of train, val, test, not 'all'"):
        MAKE[name]("all")
    with pytest.raises(ValueError, match=r"graphs is 1 to .* for split 'val', not 0"):
        MAKE[name]("val", graphs=0)
