"""What is not the plain case takes PyG's way: its results, its hooks, its errors."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric import EdgeIndex
from torch_geometric.explain import Explainer, GNNExplainer

import fmean.nn
from fmean import GenAgg

from .pairs import EDGES, NAMES, pair, same, values

X = torch.randn(10, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*'EdgeIndex'.*", "ignore:Converting sparse")
class TestPyGsWay:
    @pytest.fixture(autouse=True)
    def _not_fused(self, fused):
        yield
        assert fused.calls == 0

    @pytest.mark.parametrize("aggr", ["add", "mean", "max", "softmax", ["mean", "max"], "lstm"])
    def test_other_aggregations(self, aggr):
        edges = EDGES[:, EDGES[1].argsort()]
        name = "SAGEConv" if aggr == "lstm" or isinstance(aggr, list) else "GraphConv"
        same(*pair(name, aggr), values(10, 8), edges)

    @pytest.mark.parametrize("aggr", [None, "add"])
    @pytest.mark.parametrize("name", NAMES)
    def test_sparse_matrices(self, name, aggr):
        """Also a sum after a GenAgg of the same class, where PyG's template knows no message_and_aggregate."""
        edges = EDGES.unique(dim=1)
        adj = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.size(1), dtype=torch.float64), (10, 10))
        adj = adj.coalesce()
        x = values(10, 8)
        ours, theirs = pair(name, aggr)
        for a in (adj, adj.to_sparse_csr()):
            torch.testing.assert_close(ours(x, a), theirs(x, edges))

    def test_edge_index_class(self):
        edges = EDGES[:, EDGES[1].argsort()]
        ours, theirs = pair("GraphConv")
        same(ours, theirs, values(10, 8), EdgeIndex(edges, sparse_size=(10, 10), sort_order="col"))

    def test_static_graphs_and_other_node_dims(self):
        same(*pair("GraphConv"), values(3, 10, 8), EDGES)
        same(*pair("SAGEConv", node_dim=0), values(10, 8), EDGES)

    @pytest.mark.parametrize("kind", ["propagate", "message", "aggregate"])
    def test_hooks_see_what_pyg_shows_them(self, kind):
        ours, theirs = pair("SAGEConv")
        seen = []
        for conv in (ours, theirs):
            getattr(conv, f"register_{kind}_forward_hook")(lambda *args: seen.append(args[-1]) or args[-1] * 2)
        same(ours, theirs, values(10, 8), EDGES)
        torch.testing.assert_close(seen[0], seen[1])

    @pytest.mark.parametrize("kind", ["propagate", "message", "aggregate"])
    def test_hooks_before(self, kind):
        ours, theirs = pair("SAGEConv")
        seen = []
        for conv in (ours, theirs):
            getattr(conv, f"register_{kind}_forward_pre_hook")(lambda module, args: seen.append(args[-1].keys()))
        same(ours, theirs, values(10, 8), EDGES)
        assert seen[0] == seen[1]

    def test_hooks_of_the_aggregation(self):
        ours, _ = pair("SAGEConv")
        seen = []
        ours.aggr_module.register_forward_hook(lambda module, args, y: seen.append(y))
        ours(values(10, 8), EDGES)
        assert len(seen) == 1

    def test_explain(self, fused):
        ours, theirs = pair("GraphConv")
        x, mask = values(10, 8), torch.rand(40, dtype=torch.float64)
        for conv in (ours, theirs):
            conv.explain, conv._edge_mask = True, mask
        same(ours, theirs, x, EDGES)
        for conv in (ours, theirs):
            conv.explain = False
        same(ours, theirs, x, EDGES)
        assert fused.calls == 1  # fused again
        fused.calls = 0

    def test_messages_of_a_subclass(self):
        class Ours(fmean.nn.SAGEConv):
            def message(self, x_i, x_j):
                return x_i - x_j

        class Theirs(pyg.SAGEConv):
            def message(self, x_i, x_j):
                return x_i - x_j

        ours, theirs = Ours(8, 4, aggr=GenAgg()), Theirs(8, 4, aggr=GenAgg())
        theirs.load_state_dict(ours.state_dict())
        same(ours, theirs, values(10, 8, dtype=torch.float32), EDGES)

    def test_messages_of_an_instance(self):
        ours, theirs = pair("SAGEConv")
        ours.message = lambda x_j: 3 * x_j
        x = values(10, 8)
        torch.testing.assert_close(ours((x, None), EDGES), theirs((3 * x, None), EDGES))

    def test_a_genagg_with_a_forward_of_its_own(self):
        class Twice(GenAgg):
            def forward(self, *args, **kwargs):
                return 2 * super().forward(*args, **kwargs)

        same(*pair("SAGEConv", Twice()), values(10, 8), EDGES)


BAD = {
    "a source too large": (X, torch.tensor([[0, 11], [1, 2]])),
    "a negative source": (X, torch.tensor([[0, -1], [1, 2]])),
    "a target too large": ((X, X[:5]), EDGES),
    "not integers": (X, EDGES.double()),
    "small integers": (X, EDGES.to(torch.uint8)),
    "one dimension": (X, EDGES[0]),
    "not two rows": (X, EDGES.T),
    "no tensor": (X, [[0], [1]]),
    "x of integers": (X.long(), EDGES),
}


@pytest.mark.parametrize("args", BAD.values(), ids=BAD)
@pytest.mark.parametrize("name", NAMES)
def test_bad_input_says_what_pyg_says(name, args):
    messages = []
    for conv in pair(name):
        with pytest.raises((IndexError, ValueError, TypeError, RuntimeError)) as error:
            conv(*args)
        messages.append((error.type, str(error.value)))
    assert messages[0] == messages[1]


def test_bad_sizes_and_targets():
    ours, _ = pair("SAGEConv")
    with pytest.raises(ValueError, match="expected size 7"):
        ours(X, EDGES, size=(7, 10))
    with pytest.raises(ValueError, match=r"0 … 9 .* got values from 1 to 10"):
        ours(X, torch.tensor([[0, 1], [1, 10]]))


def test_a_subclass_stays_fused(fused):
    class Mine(fmean.nn.SAGEConv):
        pass

    conv = Mine(8, 4, aggr=GenAgg())
    conv.explain = True
    conv.explain = False
    conv(torch.randn(10, 8), EDGES)
    assert fused.calls == 1


def test_explainer(fused):
    conv = fmean.nn.SAGEConv(8, 4, aggr=GenAgg())
    x = torch.randn(10, 8)
    expected = conv(x, EDGES)
    explainer = Explainer(
        conv,
        GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )
    assert explainer(x, EDGES).edge_mask.shape == (40,)
    calls = fused.calls
    assert torch.equal(conv(x, EDGES), expected)
    assert fused.calls == calls + 1
