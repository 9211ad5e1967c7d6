"""`swap` changes the class of the layers, and nothing else."""

import copy
import io

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

import fmean.nn
from fmean import GenAgg
from fmean.nn import swap

X = torch.randn(10, 8, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, 9, (2, 40), generator=torch.Generator().manual_seed(1))

MODELS = {
    "a layer": lambda: pyg.GraphConv(8, 4, aggr=GenAgg()),
    "PyG's Sequential": lambda: pyg.Sequential(
        "x, edge_index",
        [
            (pyg.SAGEConv(8, 8, aggr=GenAgg()), "x, edge_index -> x"),
            nn.ReLU(),
            (pyg.GraphConv(8, 4, aggr=GenAgg("mlp")), "x, edge_index -> x"),
        ],
    ),
    "GraphSAGE": lambda: pyg.GraphSAGE(8, 8, num_layers=3, out_channels=4, aggr=GenAgg(), norm="LayerNorm", jk="cat"),
    "GIN": lambda: pyg.GIN(8, 8, num_layers=2, out_channels=4, aggr=GenAgg()),
    "HeteroConv": lambda: Homogeneous(
        pyg.HeteroConv({("a", "to", "a"): pyg.SAGEConv(8, 4, aggr=GenAgg()), ("a", "by", "a"): pyg.GATConv(8, 4)})
    ),
}


class Homogeneous(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edges):
        return self.conv({"a": x}, {("a", "to", "a"): edges, ("a", "by", "a"): edges})["a"]


def layers(model):
    return [m for m in model.modules() if isinstance(m, (pyg.GraphConv, pyg.SAGEConv, pyg.GINConv))]


@pytest.mark.parametrize("name", MODELS)
def test_results_state_and_names_stay(name):
    model = MODELS[name]()
    before = copy.deepcopy(model)
    held, parameters, text = layers(model), dict(model.named_parameters()), repr(model)

    assert swap(model) is model
    assert all(a is b for a, b in zip(layers(model), held, strict=True))
    assert all(type(layer).__module__ == "fmean.nn.layers" for layer in held)
    assert all(p is parameters[n] for n, p in model.named_parameters())
    assert list(model.state_dict()) == list(before.state_dict())
    assert repr(model) == text

    torch.testing.assert_close(model(X, EDGES), before(X, EDGES))
    model(X, EDGES).sum().backward()
    before(X, EDGES).sum().backward()
    for a, b in zip(model.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)

    copied = copy.deepcopy(model)
    assert all(isinstance(layer, fmean.nn.fused.Fused) for layer in layers(copied))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(X, EDGES), model(X, EDGES))


def test_takes_the_fused_way(monkeypatch):
    calls, neighbours = [], GenAgg.neighbours
    monkeypatch.setattr(GenAgg, "neighbours", lambda *args: calls.append(args) or neighbours(*args))
    model = MODELS["GraphSAGE"]()
    model(X, EDGES)
    assert len(calls) == 0
    swap(model)(X, EDGES)
    assert len(calls) == 3


def test_an_optimizer_made_before_goes_on():
    model = MODELS["a layer"]()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    before = copy.deepcopy(model.state_dict())
    swap(model)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(X, EDGES) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert all(not torch.equal(value, before[name]) for name, value in model.named_parameters())


def test_hooks_and_mode_stay():
    conv, seen = MODELS["a layer"]().eval(), []
    conv.register_forward_hook(lambda *args: seen.append("forward"))
    conv.register_message_forward_hook(lambda *args: seen.append("message"))
    conv.note = "mine"
    swap(conv)(X, EDGES)
    assert seen == ["message", "forward"]
    assert not conv.training
    assert conv.note == "mine"


def test_nested_and_shared_layers():
    shared = pyg.SAGEConv(8, 8, aggr=GenAgg())
    model = nn.ModuleDict({"a": nn.Sequential(nn.Sequential(shared)), "b": shared, "c": nn.Linear(8, 8)})
    swap(model)
    assert type(shared) is fmean.nn.SAGEConv
    assert model["a"][0][0] is model["b"] is shared


def test_a_layer_that_was_explained():
    """PyG then leaves the propagate of its own class on the layer itself."""
    conv = MODELS["a layer"]()
    conv.explain = True
    conv.explain = False
    assert "propagate" in conv.__dict__
    swap(conv)
    assert "propagate" not in conv.__dict__
    conv.explain = True
    conv.explain = False
    assert conv.propagate.__func__ is fmean.nn.GraphConv.propagate


def test_a_propagate_of_the_users_own_stays():
    conv = MODELS["a layer"]()
    conv.propagate = lambda edge_index, x, edge_weight, size: 0 * x[0]
    swap(conv)
    torch.testing.assert_close(conv(X, EDGES), conv.lin_root(X) + conv.lin_rel.bias)


@pytest.mark.parametrize("name", MODELS)
def test_fresh_aggregations(name):
    model = MODELS[name]().double().eval()
    old = {layer.aggr_module for layer in layers(model)}
    swap(model, aggr=lambda: GenAgg("mlp", alpha=1.0))
    fresh = [layer.aggr_module for layer in layers(model)]
    assert len(set(fresh)) == len(fresh)
    assert not old & set(fresh)
    for layer in layers(model):
        assert layer.aggr == str(layer.aggr_module)
        assert layer.aggr_module.alpha.dtype == torch.float64
        assert not layer.aggr_module.training
    model(X.double(), EDGES).sum().backward()
    assert all(p.grad is not None for agg in fresh for p in agg.parameters())


@pytest.mark.filterwarnings("ignore:Sparse")
def test_fresh_aggregations_in_place_of_pygs():
    model = swap(pyg.GIN(8, 8, num_layers=2), aggr=GenAgg)
    assert all(isinstance(conv.aggr_module, GenAgg) and not conv.fuse for conv in model.convs)
    adj = torch.eye(10).to_sparse_csr()
    assert model(X, adj).shape == (10, 8)


def test_again_changes_nothing():
    model = swap(MODELS["GIN"]())
    state = dict(model.state_dict(keep_vars=True))
    swap(model)
    assert all(value is state[key] for key, value in model.state_dict(keep_vars=True).items())


def test_others_are_left_alone():
    class Mine(pyg.GraphConv):
        pass

    model = nn.ModuleList([Mine(8, 4, aggr=GenAgg()), pyg.SAGEConv(8, 4), pyg.GraphConv(8, 4, aggr=GenAgg())])
    swap(model)
    assert [type(m) for m in model] == [Mine, pyg.SAGEConv, fmean.nn.GraphConv]


def test_errors_change_nothing():
    with pytest.raises(ValueError, match="Linear has no GraphConv, SAGEConv or GINConv"):
        swap(nn.Linear(8, 4))
    with pytest.raises(ValueError, match="none of the 2 layers has a GenAgg as its aggregation; aggr=GenAgg"):
        swap(pyg.GIN(8, 8, num_layers=2))
    with pytest.raises(TypeError, match=r"torch.nn.Module, got Data"):
        swap(__import__("torch_geometric").data.Data())
    for wrong in (GenAgg(), "sinh"):
        with pytest.raises(TypeError, match="GenAgg itself or lambda"):
            swap(pyg.GraphConv(8, 4), aggr=wrong)
    several = nn.ModuleList([pyg.SAGEConv(8, 4), pyg.SAGEConv(8, 4, aggr=["mean", "max"])])
    with pytest.raises(ValueError, match="one GenAgg cannot replace"):
        swap(several, aggr=GenAgg)
    with pytest.raises(TypeError, match="must make a GenAgg, but gave a MeanAggregation"):
        swap(several, aggr=pyg.MeanAggregation)
    assert all(type(conv) is pyg.SAGEConv for conv in several)
