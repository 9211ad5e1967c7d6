from itertools import chain

import pytest
import torch
from torch_geometric.data import Data

from fmean.data.graphs import GraphSet, from_data, spread, starts, targets

from .samples import same, small


@pytest.mark.parametrize("lengths", [[2, 3], [0, 2, 0, 0, 3, 0], [0], [1], [0, 0]])
def test_spread(lengths):
    length = torch.tensor(lengths)
    first = torch.randint(0, 50, length.shape)
    start, total = starts(length)[:-1], sum(lengths)
    runs = [list(range(a, a + n)) for a, n in zip(first.tolist(), lengths, strict=True)]
    assert spread(first, start, total, slope=1).tolist() == list(chain(*runs))
    assert torch.equal(spread(first, start, total), first.repeat_interleave(length))


def test_targets():
    degree, node_ptr = torch.tensor([2, 0, 1, 1]), torch.tensor([0, 3, 3, 4])
    assert targets(degree, node_ptr).tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize("task", ["graph", "node"])
@pytest.mark.parametrize("pos", [True, False])
def test_select_takes_graphs_as_they_are(task, pos, device):
    graphs = small(task=task, pos=pos)
    chosen = torch.tensor([7, 0, 7, 3])
    some = graphs.to(device).select(chosen)
    assert len(some) == 4
    assert some.device.type == device.type
    for i, original in enumerate(chosen.tolist()):
        one, other = some.graph(i).cpu(), graphs.graph(original)
        assert sorted(one.keys()) == sorted(other.keys())
        assert all(torch.equal(one[key], other[key]) for key in one.keys())  # noqa: SIM118 (PyG's Data)
    same(graphs.select(torch.arange(len(graphs))), graphs)
    same(graphs.select(torch.arange(len(graphs)) % 2 == 0), graphs.select(torch.arange(0, len(graphs), 2)))


def test_masks_go_with_their_nodes():
    graphs = small(3, task="node")
    graphs.masks = {"train": graphs.y == 1}
    some = graphs.select(torch.tensor([2, 1])).to("cpu")
    assert torch.equal(some.masks["train"], some.y == 1)
    assert torch.equal(some.graph(0).train_mask, some.graph(0).y == 1)


def test_from_data_sorts_by_target():
    listed = []
    for n in (5, 3, 4):
        edges = torch.randint(0, n, (2, 20))
        listed.append(Data(x=torch.rand(n, 2), edge_index=edges, y=torch.tensor([n]), pos=torch.rand(n, 2)))
    graphs = from_data(listed, "listed", "graph", classes=6)
    for i, one in enumerate(listed):
        back = graphs.graph(i)
        assert (back.edge_index[1].diff() >= 0).all()
        assert sorted(back.edge_index.t().tolist()) == sorted(one.edge_index.t().tolist())
        assert all(torch.equal(back[key], one[key]) for key in ("x", "y", "pos"))


def test_bad_arguments():
    good = small()
    with pytest.raises(ValueError, match="task is 'node' or 'graph', not 'edge'"):
        GraphSet(good.x, good.edge_index, good.y, good.node_ptr, good.edge_ptr, task="edge")
    with pytest.raises(ValueError, match=r"a node task with .* has as many y, not 11"):
        GraphSet(good.x, good.edge_index, good.y, good.node_ptr, good.edge_ptr, task="node")
    with pytest.raises(ValueError, match="node_ptr has 12 entries, edge_ptr has 11"):
        GraphSet(good.x, good.edge_index, good.y, good.node_ptr, good.edge_ptr[1:])
    with pytest.raises(IndexError, match="graph 11 of 11"):
        good.graph(11)
    with pytest.raises(ValueError, match="none has no graphs"):
        from_data([], "none", "graph", 2)
