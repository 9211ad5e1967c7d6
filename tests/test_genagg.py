"""GenAgg as a drop-in: in PyG's layers, and under everything that PyTorch does to a module."""

import copy
import pickle
import shutil
import warnings

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import HeteroData
from torch_geometric.nn import (
    GATv2Conv,
    GENConv,
    GINConv,
    GraphConv,
    HeteroConv,
    PNAConv,
    SAGEConv,
    TransformerConv,
    to_hetero,
)
from torch_geometric.nn.aggr import Aggregation, MultiAggregation

from fmean import GenAgg, augmented_f_mean, standard

F_NAMES = ["sinh", "mlp", "invertible"]
X = torch.randn(10, 8, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, 10, (2, 40), generator=torch.Generator().manual_seed(1))
XJ = X[EDGES[0]]
# Without a C++ compiler the graph is still captured whole, only not turned into machine code.
BACKEND = "inductor" if shutil.which("g++") or shutil.which("clang++") else "aot_eager"


def compiled(module, **options):
    torch._dynamo.reset()
    return torch.compile(module, fullgraph=True, backend=BACKEND, **options)


@pytest.fixture(params=F_NAMES)
def agg(request):
    return GenAgg(request.param)


def linear(i, o):
    return torch.nn.Linear(i, o)


def run_of(agg, owner):
    """The result, and the gradients of the owner's parameters."""
    y = agg(XJ, EDGES[1], dim_size=10)
    return [y, *torch.autograd.grad(y.square().sum(), list(owner.parameters()))]


class Twice(torch.nn.Module):
    def forward(self, value):
        return 2 * value


def replica_of(module):
    """As torch.nn.parallel.replicate makes it."""
    replica = module._replicate_for_data_parallel()
    for name, child in module._modules.items():
        replica._modules[name] = replica_of(child)
    for name, tensor in module._parameters.items():
        setattr(replica, name, tensor.view_as(tensor))
    return replica


LAYERS = {
    "GraphConv": lambda agg: GraphConv(8, 4, aggr=agg),
    "SAGEConv": lambda agg: SAGEConv(8, 4, aggr=agg),
    "GINConv": lambda agg: GINConv(linear(8, 4), aggr=agg),
    "GATv2Conv": lambda agg: GATv2Conv(8, 2, heads=2, aggr=agg),
    "GENConv": lambda agg: GENConv(8, 4, aggr=agg),
    "TransformerConv": lambda agg: TransformerConv(8, 4, aggr=agg),
    "several": lambda agg: SAGEConv(8, 4, aggr=MultiAggregation([agg, "mean", standard("max")])),
    "PNAConv": lambda agg: PNAConv(8, 4, ["mean", agg], ["identity"], torch.tensor([0, 5, 5])),
}


class TestInPyG:
    @pytest.mark.parametrize("layer", LAYERS)
    def test_in_a_layer(self, layer, agg):
        conv = LAYERS[layer](agg)
        y = conv(X, EDGES)
        assert y.shape == (10, 4)
        y.square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in agg.parameters())

    @pytest.mark.parametrize(("name", "pyg"), [("sum", "add"), ("mean", "mean"), ("max", "max"), ("min", "min")])
    def test_a_standard_aggregator_is_pygs_own(self, name, pyg):
        ours, theirs = GraphConv(8, 4, aggr=standard(name)), GraphConv(8, 4, aggr=pyg)
        theirs.load_state_dict({k: v for k, v in ours.state_dict().items() if "aggr" not in k})
        torch.testing.assert_close(ours(X, EDGES), theirs(X, EDGES))

    def test_global_pooling(self, agg):
        batch = torch.tensor([0] * 4 + [1] * 6)
        pool = agg.eval()
        torch.testing.assert_close(pool(X, batch)[1:], pool(X[4:]))

    def test_hetero_conv(self, agg):
        edges = {("a", "to", "b"): EDGES, ("b", "to", "a"): EDGES}
        conv = HeteroConv({kind: SAGEConv((8, 8), 4, aggr=copy.deepcopy(agg)) for kind in edges})
        assert conv({"a": X, "b": X}, edges)["a"].shape == (10, 4)

    def test_to_hetero(self, agg):
        data = HeteroData()
        data["a"].x = data["b"].x = X
        data["a", "to", "b"].edge_index = data["b", "to", "a"].edge_index = EDGES

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = SAGEConv((-1, -1), 4, aggr=agg)
                self.second = SAGEConv((-1, -1), 2, aggr=GenAgg())

            def forward(self, x, edge_index):
                return self.second(self.first(x, edge_index).relu(), edge_index)

        model = to_hetero(Model(), data.metadata())
        y = model(data.x_dict, data.edge_index_dict)
        assert y["a"].shape == (10, 2)

    def test_is_an_aggregation(self, agg):
        assert isinstance(agg, Aggregation)
        assert agg(XJ, EDGES[1], None, 10, -2, max_num_elements=10).shape == (10, 8)

    def test_bipartite_and_static_graphs(self, agg):
        assert SAGEConv((8, 8), 4, aggr=agg)((X, X[:5]), EDGES % 5).shape == (5, 4)
        assert GraphConv(8, 4, aggr=agg)(torch.stack([X, X]), EDGES).shape == (2, 10, 4)


class TestUnderPyTorch:
    def test_starts_and_resets(self):
        agg = GenAgg(alpha=0.5, beta=0.25)
        assert agg.alpha.tolist() == [0.5] * 3
        assert agg.beta.item() == 0.25
        with torch.no_grad():
            for p in agg.parameters():
                p.fill_(9.0)
        agg.reset_parameters()
        assert agg.alpha.tolist() == [0.5] * 3
        assert agg.beta.item() == 0.25
        assert all((p != 9).all() for p in agg.parameters())

    def test_what_is_not_learned_is_a_buffer(self):
        agg = GenAgg(learn_alpha=False, learn_beta=False)
        assert {"alpha", "beta"} <= set(dict(agg.named_buffers()))
        assert {"alpha", "beta"} <= set(agg.state_dict())

    def test_a_loaded_beta_counts_even_where_it_is_not_learned(self):
        agg = GenAgg("root_mean_square", learn_beta=False)
        agg.load_state_dict(standard("standard_deviation").state_dict(), strict=False)
        torch.testing.assert_close(agg(X), X.std(0, correction=0, keepdim=True))

    @pytest.mark.parametrize("channels", [1, 8])
    @pytest.mark.parametrize("f", F_NAMES)
    def test_copies_and_state(self, f, channels):
        agg = GenAgg(f, channels=channels)
        y = agg(XJ, EDGES[1], dim_size=10)
        other = GenAgg(f, channels=channels)
        other.load_state_dict(agg.state_dict())
        for copied in (copy.deepcopy(agg), pickle.loads(pickle.dumps(agg)), other):
            assert torch.equal(copied(XJ, EDGES[1], dim_size=10), y)
        alone = agg.feature(-1)(XJ[:, [-1]], EDGES[1], dim_size=10)
        torch.testing.assert_close(alone, y[:, [-1]])

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compile(self, agg, dynamic):
        run = compiled(agg, dynamic=dynamic)
        for n in (40, 57, 80):
            x, index = torch.randn(n, 8), torch.randint(0, 10, (n,))
            results = []
            for module in (run, agg):
                z = x.clone().requires_grad_()
                y = module(z, index, dim_size=10)
                results.append([y, *torch.autograd.grad(y.square().sum(), [z, *agg.parameters()])])
            for a, b in zip(*results, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)

    def test_compile_ptr_dense_and_a_whole_layer(self, agg):
        ptr = torch.tensor([0, 3, 3, 10])
        torch.testing.assert_close(compiled(agg)(X, ptr=ptr), agg(X, ptr=ptr), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(compiled(agg)(X), agg(X), rtol=1e-4, atol=1e-5)
        conv = GraphConv(8, 4, aggr=agg)
        torch.testing.assert_close(compiled(conv)(X, EDGES), conv(X, EDGES), rtol=1e-4, atol=1e-5)

    def test_export(self, agg):
        conv = GraphConv(8, 4, aggr=agg).eval()
        edges = torch.export.Dim("edges", min=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.export(conv, (X, EDGES))
            dynamic = torch.export.export(
                agg.eval(), (X[EDGES[0]], EDGES[1], None, 10), dynamic_shapes=({0: edges}, {0: edges}, None, None)
            )
        torch.testing.assert_close(program.module()(X, EDGES), conv(X, EDGES))
        more = torch.randint(0, 10, (2, 73))
        torch.testing.assert_close(dynamic.module()(X[more[0]], more[1], None, 10), agg(X[more[0]], more[1], None, 10))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_autocast(self, agg, dtype):
        conv = GraphConv(8, 4, aggr=agg)
        with torch.autocast("cpu", dtype):
            assert torch.equal(agg(X), agg(X.clone()))
            y = conv(X, EDGES)
        torch.testing.assert_close(y.float(), conv(X, EDGES), rtol=0.05, atol=0.1)
        # Computed in float32 all the same, not in half precision.
        expected = agg(X)
        with torch.autocast("cpu", dtype):
            assert torch.equal(agg(X), expected)

    def test_half_and_double_modules(self, agg):
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            moved = copy.deepcopy(agg).to(dtype)
            y = moved(XJ.to(dtype), EDGES[1], dim_size=10)
            assert y.dtype == dtype
            torch.testing.assert_close(y.float(), agg(XJ, EDGES[1], dim_size=10), rtol=0.1, atol=0.1)

    def test_no_grad_and_inference_mode(self, agg):
        y = agg(X)
        with torch.no_grad():
            assert torch.equal(agg(X), y)
        with torch.inference_mode():
            assert torch.equal(agg(X), y)

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_gradient_checkpointing(self, agg, reentrant):
        def gradients(run):
            agg.zero_grad()
            x = X.clone().requires_grad_()
            run(x).square().sum().backward()
            return [x.grad, *(p.grad.clone() for p in agg.parameters())]

        plain = gradients(agg)
        for a, b in zip(gradients(lambda x: checkpoint(agg, x, use_reentrant=reentrant)), plain, strict=True):
            torch.testing.assert_close(a, b)

    def test_vmap_and_functional_call(self, agg):
        models = [copy.deepcopy(agg) for _ in range(3)]
        for model in models:
            model.reset_parameters()
        parameters, buffers = torch.func.stack_module_state(models)
        x = torch.randn(3, 10, 8)
        y = torch.func.vmap(lambda p, b, x: torch.func.functional_call(agg, (p, b), (x,)))(parameters, buffers, x)
        torch.testing.assert_close(y, torch.stack([model(v) for model, v in zip(models, x, strict=True)]))

    def test_on_the_meta_device(self):
        with torch.device("meta"):
            agg = GenAgg(learn_beta=False)
            assert agg(torch.empty(10, 8)).shape == (1, 8)
        assert "GenAgg" in repr(agg)

    def test_a_gnn_learns(self, agg):
        """A task that mean cannot do: tell the largest neighbour."""
        x = torch.randn(200, 1)
        edges = torch.randint(0, 200, (2, 1000))
        y = augmented_f_mean(x[edges[0]], standard("max").f, index=edges[1], dim_size=200)
        optimiser = torch.optim.Adam(agg.parameters(), lr=0.02)
        losses = []
        for _ in range(300):
            optimiser.zero_grad()
            loss = (agg(x[edges[0]], edges[1], dim_size=200) - y).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        mean = augmented_f_mean(x[edges[0]], standard("mean").f, index=edges[1], dim_size=200)
        assert losses[-1] < 0.5 * min(losses[0], (mean - y).square().mean().item())

    def test_as_a_replica_of_data_parallel(self, agg):
        """Which holds no parameters, only tensors of their names that gradients flow through."""
        expected = run_of(agg, agg)
        replica = replica_of(agg)
        assert not list(replica.parameters())
        for a, b in zip(run_of(replica, agg), expected, strict=True):
            assert torch.equal(a, b)

    def test_with_a_parametrised_f(self, agg):
        part = next(m for m in agg.f.modules() if m._parameters)
        name, value = next(iter(part.named_parameters(recurse=False)))
        with torch.no_grad():
            value *= 2
        expected = agg(XJ, EDGES[1], dim_size=10)
        with torch.no_grad():
            value /= 2
        torch.nn.utils.parametrize.register_parametrization(part, name, Twice())
        torch.testing.assert_close(agg(XJ, EDGES[1], dim_size=10), expected)

    def test_on_another_device_than_x(self, agg):
        """Kernels would follow a pointer to nowhere."""
        with pytest.raises((ValueError, RuntimeError), match="meta"):
            agg.to("meta")(XJ, EDGES[1], dim_size=10)
        with pytest.raises(RuntimeError, match="meta"):
            GenAgg().neighbours(X, *EDGES, 10, torch.ones(40, device="meta"))

    def test_on_a_device(self, agg, device):
        conv = GraphConv(8, 4, aggr=agg)
        expected = conv(X, EDGES)
        y = conv.to(device)(X.to(device), EDGES.to(device))
        assert y.device.type == device.type
        torch.testing.assert_close(y.cpu(), expected, rtol=1e-3, atol=1e-3)


def test_repr_shows_what_matters():
    assert repr(standard("harmonic_mean")) == "GenAgg(Power(p=-1), alpha=0, beta=0)"
    assert repr(GenAgg("invertible", channels=64)).endswith("alpha=0 on average, beta=0 on average, channels=64)")
