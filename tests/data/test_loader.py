import pytest
import torch
from torch_geometric.loader import DataLoader

from fmean.data import Loader, cluster
from fmean.data import loader as module
from fmean.kernels.csr import csr_of_edges

from .samples import small


def listed(graphs, order=None):
    return [graphs.graph(i) for i in (range(len(graphs)) if order is None else order.tolist())]


def check(ours, theirs):
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        for name in ("x", "edge_index", "y", "batch", "ptr"):
            assert torch.equal(getattr(a, name).cpu(), b[name]), name
            assert getattr(a, name).dtype == b[name].dtype
        assert a.graphs == b.num_graphs
        assert (a.pos is None) == ("pos" not in b)
        assert a.pos is None or torch.equal(a.pos.cpu(), b.pos)


@pytest.mark.parametrize("at_once", [1, 30, 2**18], ids=lambda n: f"{n} edges at once")
@pytest.mark.parametrize("task", ["graph", "node"])
@pytest.mark.parametrize("pos", [True, False])
def test_same_as_pyg(task, pos, at_once, device, monkeypatch):
    for name in ("AT_ONCE", "AT_ONCE_ON_GPU"):
        monkeypatch.setattr(module, name, at_once)
    graphs = small(23, task, pos)
    for size in (1, 4, 23, 40):
        check(Loader(graphs.to(device), size), DataLoader(listed(graphs), size))
    shuffled = Loader(graphs.to(device), 4, shuffle=True, seed=3)
    check(shuffled.epoch(5), DataLoader(listed(graphs, shuffled.order(5)), 4))


@pytest.mark.parametrize("features", [1, 3])
def test_rows_of_every_width(features):
    graphs = small()
    graphs.x = torch.rand(len(graphs.x), features)
    check(Loader(graphs, 4), DataLoader(listed(graphs), 4))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_wide_edge_index(dtype):
    """As for graphs of more nodes than int16 can number."""
    graphs = small(23)
    graphs.edge_index = graphs.edge_index.to(dtype)
    check(Loader(graphs, 4), DataLoader(listed(graphs), 4))


def test_batches_of_more_nodes_than_16_bits_hold():
    graphs = cluster("val", graphs=600)
    check(Loader(graphs, 580), DataLoader(listed(graphs), 580))


def test_real_graphs_same_as_pyg():
    graphs = cluster("val", graphs=50)
    check(Loader(graphs, 32), DataLoader(listed(graphs), 32))


def test_edges_in_order_of_target():
    for batch in Loader(cluster("val", graphs=50), 16, shuffle=True):
        assert (batch.edge_index[1].diff() >= 0).all()


def test_order_depends_on_seed_and_epoch_alone():
    graphs = small(50)
    loader, again = (Loader(graphs, 7, shuffle=True, seed=1) for _ in range(2))
    epochs = [loader.order(number) for number in range(3)]
    assert all(torch.equal(order.sort().values, torch.arange(50)) for order in epochs)
    assert not torch.equal(epochs[0], epochs[1])
    assert torch.equal(again.order(2), epochs[2])
    assert not torch.equal(Loader(graphs, 7, shuffle=True, seed=2).order(0), epochs[0])
    for number in range(2):  # iterating is the next epoch
        for a, b in zip(loader, again.epoch(number), strict=True):
            assert torch.equal(a.x, b.x)


def test_drop_last():
    graphs = small(11)
    assert [batch.graphs for batch in Loader(graphs, 4)] == [4, 4, 3]
    dropping = Loader(graphs, 4, drop_last=True)
    assert [batch.graphs for batch in dropping] == [4, 4]
    assert (len(Loader(graphs, 4)), len(dropping)) == (3, 2)


def test_a_batch_can_be_changed_without_changing_the_set():
    graphs = small()
    before = graphs.x.clone(), graphs.edge_index.clone()
    for batch in Loader(graphs, 3):
        batch.x.zero_()
        batch.edge_index.zero_()
    assert torch.equal(graphs.x, before[0])
    assert torch.equal(graphs.edge_index, before[1])


class TestWhatKernelsNeedNotLookFor:
    """As on a GPU, which would be waited for."""

    @pytest.fixture(autouse=True)
    def _as_on_a_gpu(self, monkeypatch):
        monkeypatch.setattr(module, "WAITED_FOR", ("cpu",))

    @pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
    def test_the_same_rows_without_a_look(self, dtype, monkeypatch):
        graphs = small(23)
        graphs.edge_index = graphs.edge_index.to(dtype)

        def look(*_):
            raise AssertionError("a look at the values")

        for batch in Loader(graphs, 4, shuffle=True):
            wanted = self.tensors(batch.edge_index.clone(), len(batch.x))
            with monkeypatch.context() as patch:
                for name in ("aminmax", "tolist", "item", "__int__", "__bool__"):
                    patch.setattr(torch.Tensor, name, look)
                found = self.tensors(batch.edge_index, len(batch.x))
            assert len(found) == len(wanted) == 22
            for a, b in zip(found, wanted, strict=True):
                assert torch.equal(a, b) if b is not None else a is None

    def tensors(self, edge_index, n):
        """All that kernels are told of the rows, those of the targets and those of the sources."""
        ends = edge_index.unbind()
        both = [csr_of_edges(a, b, n, n) for a, b in (ends, ends[::-1])]
        return [t for r in both for t in (r.ptr, r.col, r.edge, *r.sample(2), *(t for part in r.lists for t in part))]

    def test_a_batch_that_was_changed_is_looked_at(self):
        batch = next(iter(Loader(small(8), 4)))
        batch.edge_index[1, 0] = len(batch.x)
        with pytest.raises(ValueError, match="index must lie in"):
            csr_of_edges(*batch.edge_index, len(batch.x), len(batch.x))

    def test_too_few_nodes_are_noticed(self):
        batch = next(iter(Loader(small(8), 4)))
        with pytest.raises(ValueError, match="must lie in"):
            csr_of_edges(*batch.edge_index, 2, 2)

    @pytest.mark.parametrize("at_once", [1, 2**22])
    def test_what_is_not_in_order_is_not_vouched_for(self, at_once, monkeypatch):
        monkeypatch.setattr(module, "AT_ONCE_ON_GPU", at_once)
        assert module._orderly(small(8))
        for change in ("outside", "negative", "order"):
            graphs = small(8)
            edges = graphs.edge_index = graphs.edge_index.clone()
            if change == "order":
                edges[1, :] = edges[1].flip(0)
            else:
                edges[0, -1] = 30_000 if change == "outside" else -1
            assert not module._orderly(graphs)
        monkeypatch.setattr(module, "LONG", 1)
        assert not module._orderly(small(8))


def test_bad_batch_size():
    with pytest.raises(ValueError, match="batch_size is at least 1, not 0"):
        Loader(small(), 0)
