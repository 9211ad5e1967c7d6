"""Batches with room to spare hold the same graphs as the Loader's, and the kernels are told where they are."""

import pytest
import torch

from fmean import GenAgg, standard
from fmean.data import Blocks, GraphSet, Loader
from fmean.data.sbm import cluster
from fmean.functions import MLPAutoencoder
from fmean.kernels import call as calls
from fmean.kernels import fused, plain, supply
from fmean.kernels.describe import describe
from fmean.nn import GraphConv

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, in Triton's interpreter

WHICH = torch.tensor([2, 0, 4, 1])  # 4: no graph at all


def graphs(symmetric=False, device="cpu"):
    """Of 3, 5, 2 and 6 nodes, some without edges in or out."""
    sizes, pairs = [3, 5, 2, 6], []
    for n in sizes:
        there = torch.rand(n, n) < 0.5
        there[-1] = False
        there = there & there.T if symmetric else there
        target, source = there.nonzero().T
        pairs.append(torch.stack([source, target]))
    nodes = torch.tensor(sizes)
    return GraphSet(
        x=torch.randn(int(nodes.sum()), 3),
        edge_index=torch.cat(pairs, 1).to(torch.int16),
        y=torch.arange(int(nodes.sum())) % 2,
        node_ptr=torch.tensor([0, *nodes.cumsum(0)]),
        edge_ptr=torch.tensor([0, *torch.tensor([p.size(1) for p in pairs]).cumsum(0)]),
        task="node",
    ).to(device)


def compact(some, which):
    (batch,) = Loader(some.select(which[which < len(some)]), 10).epoch(0)
    return batch


def test_the_same_graphs():
    some = graphs()
    block, batch = Blocks(some).batch(WHICH), compact(some, WHICH)
    real = block.real.flatten()
    assert torch.equal(block.x[real], batch.x)
    assert torch.equal(block.y[real], batch.y)
    assert (block.y[~real] == -100).all()
    assert (block.x[~real] == 0).all()
    number = real.cumsum(0) - 1  # of each node in the batch of the Loader
    kept = real[block.edge_index[1]]
    assert torch.equal(number[block.edge_index[:, kept]], batch.edge_index)
    dummies = block.edge_index[:, ~kept]
    assert torch.equal(*dummies)
    assert not real[dummies].any()


def test_classes_and_positions_of_graphs():
    some = graphs()
    some.y, some.task, some.pos = torch.tensor([3, 1, 2, 0]), "graph", torch.rand(len(some.x), 2)
    block, batch = Blocks(some).batch(WHICH), compact(some, WHICH)
    assert block.y.tolist() == [2, 3, -100, 1]
    assert torch.equal(block.pos[block.real.flatten()], batch.pos)


def test_shapes_are_always_the_same():
    blocks = Blocks(cluster("val", graphs=9))
    shapes = {tuple(v.shape for v in blocks.batch(torch.randint(10, (4,))) if v is not None) for _ in range(5)}
    assert len(shapes) == 1


@pytest.mark.parametrize("symmetric", [True, False])
def test_edges_back_are_looked_for_only_where_they_differ(symmetric):
    assert (Blocks(graphs(symmetric)).targets is None) is symmetric


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda: GenAgg("sinh", beta=0.3),
        lambda: GenAgg(MLPAutoencoder(inversion=0.0), alpha=0.3, beta=0.2),
        lambda: standard("sum"),
        lambda: standard("max"),
    ],
    ids=["sinh", "mlp", "sum", "max"],
)
def test_kernels_never_meet_dummies(make, symmetric, monkeypatch):
    """Results and gradients of real nodes are those of the plain path on the Loader's batch."""
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        from fmean.kernels import triton_kernels

        monkeypatch.setattr(calls, "backend", lambda x: triton_kernels)
    agg, some, which = make().to(device), graphs(symmetric, device), WHICH.to(device)
    blocks = Blocks(some)
    block, batch = blocks.batch(which), compact(some, which)
    if device == "cpu":
        supply(block.edge_index, len(block.x), *blocks.rows(which, block.edge_index))
    real = block.real.flatten()

    x = block.x.masked_fill(~real[:, None], torch.nan).requires_grad_()
    found, beta = describe(agg.f, agg.alpha), agg._used_beta()
    centred = isinstance(beta, torch.Tensor)
    theta = [*found.parameters, fused._as_parameter(agg.alpha, found.alphas, 1, x), *([beta] if centred else [])]
    call = calls.Call(block.edge_index[0], block.edge_index[1], None, len(x), found.recipe, centred, 0.0)
    y = calls.FMean.apply(x, None, call, call.rows(x), agg.f, *theta)
    weight = torch.randn_like(y)
    leaves = list(agg.parameters())
    ours = [y[real], *torch.autograd.grad((y * weight)[real].sum(), [x, *leaves])]
    ours[1] = ours[1][real]

    x = batch.x.clone().requires_grad_()
    with plain():
        y = agg.neighbours(x, batch.edge_index[0], batch.edge_index[1], len(x))
    reference = [y, *torch.autograd.grad((y * weight[real]).sum(), [x, *leaves])]
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_the_sample_for_the_inversion_objective_is_of_real_edges():
    blocks = Blocks(graphs())
    block = blocks.batch(WHICH)
    rows, _ = blocks.rows(WHICH, block.edge_index)
    places, of_rows = rows.sample(3)
    assert len(places) == -(-block.edge_index.size(1) // 3)
    edges = set(map(tuple, block.edge_index.T.tolist()))
    has_edges = rows.counts[of_rows] > 0
    assert has_edges.any()
    found = torch.stack([places, of_rows])[:, has_edges]
    assert set(map(tuple, found.T.tolist())) <= edges
    assert (~block.real.flatten()[of_rows[~has_edges]]).all()  # where a graph has none: one of its dummies


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_layer_in_a_cuda_graph():
    """Recorded with some graphs, replayed with others: what the layer says of those, and the gradients."""
    some = cluster("val", graphs=20).to("cuda")
    blocks, conv = Blocks(some), GraphConv(7, 8, aggr=GenAgg("mlp")).cuda()
    which = torch.arange(4, device="cuda")

    def step():
        block = blocks.batch(which)
        conv.zero_grad()
        y = conv(block.x, block.edge_index)
        (y * block.real.view(-1, 1)).square().mean().backward()
        return y

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    conv.zero_grad()
    with torch.cuda.graph(graph, stream=stream):
        y = step()
    recorded = [p.grad for p in conv.parameters()]
    for begin in (0, 8, 3):
        which.copy_(torch.arange(begin, begin + 4))
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        replayed = [y.clone(), *(g.clone() for g in recorded)]
        once = step()
        for a, b in zip(replayed, [once, *(p.grad for p in conv.parameters())], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
