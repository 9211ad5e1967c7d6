"""The fused layers are PyG's layers: same results, same gradients, same state; only without the messages."""

import copy
import io
import shutil

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.data import HeteroData

import fmean.nn
from fmean import GenAgg, standard

from .pairs import EDGES, NAMES, layer, pair, run, same, values

BACKEND = "inductor" if shutil.which("g++") or shutil.which("clang++") else "aot_eager"


@pytest.mark.parametrize("name", NAMES)
class TestAgainstPyG:
    @pytest.mark.parametrize("f", ["sinh", "mlp", "invertible", "max"])
    def test_forward_and_gradients(self, name, f, fused):
        same(*pair(name, GenAgg(f, beta=0.3)), values(10, 8), EDGES)
        assert fused.calls == 1

    @pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
    @pytest.mark.parametrize("edges", [EDGES, EDGES.int(), EDGES[:, EDGES[1].argsort()], EDGES[:, :0]])
    def test_flows_and_edges(self, name, flow, edges, fused):
        same(*pair(name, flow=flow), values(10, 8), edges)
        assert fused.calls == 1

    @pytest.mark.parametrize("size", [None, (9, 5)])
    def test_bipartite(self, name, size, fused):
        edges = torch.stack([EDGES[0], EDGES[1] % 4])
        same(*pair(name), (values(9, 8), values(5, 8)), edges, size=size)
        same(*pair(name), (values(9, 8), None), edges, size=size)
        assert fused.calls == 2

    def test_bipartite_against_the_edges(self, name, fused):
        ours, theirs = pair(name, flow="target_to_source")
        same(ours, theirs, (values(9, 8), values(9, 8)), EDGES)
        same(ours, theirs, (values(9, 8), None), EDGES)
        assert fused.calls == 2

    def test_without_gradients(self, name):
        ours, theirs = pair(name)
        x = values(10, 8)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_other_types(self, name, dtype, fused):
        # PyG rounds the messages and their gradients to the type; ours stay in float32 on the way.
        tolerance = 0.03 if dtype == torch.bfloat16 else None
        same(*pair(name, dtype=dtype), values(10, 8, dtype=dtype), EDGES, tolerance=tolerance)
        assert fused.calls == 1

    def test_autocast(self, name):
        ours, theirs = pair(name, dtype=torch.float32)
        x = values(10, 8, dtype=torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            same(ours, theirs, x, EDGES)

    def test_on_a_device(self, name, device):
        ours, _ = pair(name, dtype=torch.float32)
        x = torch.randn(10, 8)
        expected = ours(x, EDGES)
        y = ours.to(device)(x.to(device), EDGES.to(device))
        torch.testing.assert_close(y.cpu(), expected, rtol=1e-3, atol=1e-3)

    def test_state_goes_round(self, name):
        ours, theirs = pair(name, dtype=torch.float32)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
        again = layer(fmean.nn, name, GenAgg())
        again.load_state_dict(theirs.state_dict())
        x = torch.randn(10, 8)
        assert torch.equal(again(x, EDGES), ours(x, EDGES))

    def test_repr_copies_and_files(self, name, fused):
        ours, theirs = pair(name, dtype=torch.float32)
        assert repr(ours) == repr(theirs)
        file = io.BytesIO()
        torch.save(ours, file)
        file.seek(0)
        x = torch.randn(10, 8)
        expected = ours(x, EDGES)
        for other in (copy.deepcopy(ours), torch.load(file, weights_only=False)):
            assert type(other) is type(ours)
            assert torch.equal(other(x, EDGES), expected)
        assert fused.calls == 3

    def test_resets(self, name):
        ours, _ = pair(name)
        with torch.no_grad():
            for p in ours.parameters():
                p.fill_(9.0)
        ours.reset_parameters()
        assert all((p != 9).any() for p in ours.parameters())

    def test_compile(self, name):
        ours, theirs = pair(name, dtype=torch.float32)
        torch._dynamo.reset()
        compiled = torch.compile(ours, fullgraph=True, backend=BACKEND)
        x = values(10, 8, dtype=torch.float32)
        for a, b in zip(run(compiled, x, EDGES), run(theirs, x, EDGES), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

    def test_lazy(self, name):
        if name != "GINConv":
            conv = getattr(fmean.nn, name)(-1, 4, aggr=GenAgg())
            assert conv(torch.randn(10, 8), EDGES).shape == (10, 4)


class TestEdgeWeight:
    @pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
    @pytest.mark.parametrize("shape", [(40,), (40, 1)])
    def test_is_a_factor_of_the_message(self, flow, shape, fused):
        same(*pair("GraphConv", flow=flow), values(10, 8), EDGES, values(*shape))
        assert fused.calls == 1

    def test_counts_nothing(self):
        """A mean of 2·x and 4·x over two edges is 3·x."""
        conv = fmean.nn.GraphConv(1, 1, aggr=standard("mean"), bias=False)
        nn.init.ones_(conv.lin_rel.weight)
        x, weight = torch.tensor([[5.0]]), torch.tensor([2.0, 4.0])
        y = conv((x, None), torch.zeros(2, 2, dtype=torch.long), weight)
        torch.testing.assert_close(y, torch.tensor([[15.0]]))

    @pytest.mark.parametrize("weight", [torch.arange(40), torch.rand(40) > 0.5, torch.rand(40)])
    def test_of_a_smaller_type(self, weight, fused):
        same(*pair("GraphConv"), values(10, 8), EDGES, weight)
        assert fused.calls == 1

    def test_one_for_all_edges_takes_pygs_way(self, fused):
        same(*pair("GraphConv"), values(10, 8), EDGES, values(1))
        assert fused.calls == 0

    def test_wrong_number(self):
        for conv in pair("GraphConv"):
            with pytest.raises(RuntimeError, match="size"):
                conv(values(10, 8), EDGES, values(39))

    def test_compile(self):
        ours, theirs = pair("GraphConv", dtype=torch.float32)
        torch._dynamo.reset()
        compiled = torch.compile(ours, fullgraph=True, backend=BACKEND)
        args = values(10, 8, dtype=torch.float32), EDGES, values(40, dtype=torch.float32)
        for a, b in zip(run(compiled, *args), run(theirs, *args), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_export(fused):
    ours, _ = pair("GraphConv", dtype=torch.float32)
    x = torch.randn(10, 8)
    program = torch.export.export(ours.eval(), (x, EDGES))
    assert fused.calls == 1
    torch.testing.assert_close(program.module()(x, EDGES), ours(x, EDGES))


def test_to_hetero(fused):
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(10, 8), torch.randn(10, 8)
    data["a", "to", "b"].edge_index = data["b", "to", "a"].edge_index = EDGES

    def outputs(module):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = module.SAGEConv((-1, -1), 4, aggr=GenAgg())
                self.second = module.GraphConv((-1, -1), 2, aggr=GenAgg())

            def forward(self, x, edge_index):
                return self.second(self.first(x, edge_index).relu(), edge_index)

        torch.manual_seed(0)
        model = pyg.to_hetero(Model(), data.metadata())
        return model(data.x_dict, data.edge_index_dict)

    torch.testing.assert_close(outputs(fmean.nn), outputs(pyg))
    assert fused.calls == 4
