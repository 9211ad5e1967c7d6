"""`harden`: a plain PyG model in place of a learned one."""

import copy
import pickle

import pytest
import torch
from torch_geometric.nn import GraphConv, GraphSAGE
from torch_geometric.nn.aggr import MaxAggregation, MultiAggregation

import fmean.nn
from fmean import GenAgg, harden, standard

X = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
EDGES = torch.randint(0, 25, (2, 120), generator=torch.Generator().manual_seed(1))  # five nodes have no neighbour


class Net(torch.nn.Module):
    def __init__(self, *aggs):
        super().__init__()
        self.convs = torch.nn.ModuleList([fmean.nn.GraphConv(4, 4, aggr=agg) for agg in aggs])

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = conv(x, edge_index).tanh()
        return x


def test_near_ones_are_replaced_and_others_left():
    model = Net(GenAgg("max"), GenAgg("harmonic_mean"), GenAgg())
    hard = harden(model)
    assert isinstance(hard.convs[0].aggr_module, MaxAggregation)
    assert hard.convs[1].aggr_module.f.p == -1
    assert isinstance(hard.convs[2].aggr_module, GenAgg)
    assert [one.replaced for one in hard.hardened] == [True, True, False]
    assert str(hard.hardened).startswith("2 of 3 replaced.\nconvs.0.aggr_module: now max")
    assert "convs.2.aggr_module: left as it is (nearest:" in str(hard.hardened)
    torch.testing.assert_close(hard(X, EDGES), model(X, EDGES))


def test_the_trained_model_is_left_as_it_is():
    model = Net(GenAgg("max"))
    state = copy.deepcopy(model.state_dict())
    harden(model)
    assert isinstance(model.convs[0].aggr_module, GenAgg)
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_what_is_hardened_is_pygs_own():
    hard = harden(Net(GenAgg("max"), GenAgg("sum", alpha=1.0)))
    assert [type(conv) for conv in hard.convs] == [GraphConv, GraphConv]
    assert not any(isinstance(m, GenAgg) for m in hard.modules())
    plain = torch.nn.ModuleList([GraphConv(4, 4, aggr="max"), GraphConv(4, 4, aggr="sum")])
    plain.load_state_dict(hard.convs.state_dict())
    y = X
    for conv in plain:
        y = conv(y, EDGES).tanh()
    torch.testing.assert_close(hard(X, EDGES), y)


@pytest.mark.parametrize("name", ["max", "root_mean_square"])
def test_saved_compiled_and_copied(name, tmp_path):
    hard = harden(Net(GenAgg(name), GenAgg(name))).eval()
    y = hard(X, EDGES)
    torch.save(hard.state_dict(), tmp_path / "model.pt")
    other = harden(Net(GenAgg(name), GenAgg(name)))
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    for model in (other, copy.deepcopy(hard), pickle.loads(pickle.dumps(hard))):
        torch.testing.assert_close(model(X, EDGES), y)
    torch._dynamo.reset()
    compiled = torch.compile(hard, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(X, EDGES), y)


def test_scale_and_shift():
    """3·mean + 1 is replaced as such; an empty set still gives 0."""

    class Shifted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.zero = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return x + self.zero

        def inverse(self, s):
            return 3 * s + 1

    agg = GenAgg(Shifted())
    index = torch.tensor([0, 0, 2])
    y = agg(X[:3], index, dim_size=4)
    hard = harden(agg)
    torch.testing.assert_close(hard(X[:3], index, dim_size=4), y)
    torch.testing.assert_close(hard(X[:3].unsqueeze(0), index, dim_size=4)[0], y)
    torch.testing.assert_close(hard(X[:3].t(), index, dim_size=4, dim=-1), y.t())
    assert "as 3·⊕ + 1" in str(hard.hardened)
    plain = harden(agg, calibrate=False)
    torch.testing.assert_close(plain(X[:3], index, dim_size=4), standard("mean")(X[:3], index, dim_size=4))


def test_each_feature_by_itself():
    agg = GenAgg(channels=4)
    with torch.no_grad():  # features 0 and 2 become Σ|x|^q of q = 2, 1 and 3 the mean of x
        agg.f.parts[1].rho.fill_(torch.tensor(2.0).log())
        agg.f.parts[0].rho.fill_(-4.0)
        agg.f.parts[0].c.zero_()
        agg.f.omega.copy_(torch.tensor([[-30.0, 30, -30], [30, -30, -30], [-30, 30, -30], [30, -30, -30]]))
    hard = harden(agg)
    assert [one.nearest for one in hard.hardened] == ["root_mean_square", "mean", "root_mean_square", "mean"]
    index = torch.arange(30) // 4
    torch.testing.assert_close(hard(X, index), agg(X, index), rtol=1e-3, atol=1e-3)
    assert not any(isinstance(m, GenAgg) and m.seen is not None for m in hard.modules())


def test_features_that_are_left_stay_learned():
    agg = GenAgg(channels=4)
    with torch.no_grad():
        agg.f.parts[0].rho.fill_(-4.0)
        agg.f.parts[0].c.zero_()
        agg.f.omega[1] = torch.tensor([30.0, -30, -30])
    hard = harden(agg)
    assert [one.replaced for one in hard.hardened] == [False, True, False, False]
    index = torch.arange(30) // 4
    torch.testing.assert_close(hard(X, index), agg(X, index), rtol=1e-3, atol=1e-3)
    (left,) = [m for m in hard.modules() if isinstance(m, GenAgg) and m.seen is not None]
    assert left.channels == 3


def test_within_other_modules_and_shared():
    shared = GenAgg("min")
    model = torch.nn.ModuleDict(
        {
            "several": MultiAggregation([shared, "mean"]),
            "pool": shared,
            "net": GraphSAGE(4, 4, num_layers=1, aggr=GenAgg("max")),
        }
    )
    hard = harden(model)
    assert hard["pool"] is hard["several"].aggrs[0]
    assert len(hard.hardened) == 2
    assert not any(isinstance(m, GenAgg) for m in hard.modules())


def test_frozen_ones_become_pygs_too():
    hard = harden(GraphConv(4, 4, aggr=standard("max")))
    assert isinstance(hard.aggr_module, MaxAggregation)


def test_one_that_gives_the_same_for_all_is_left():
    agg = GenAgg()
    agg(torch.zeros(50, 3), torch.arange(50) // 5)
    assert not harden(agg, 0.01).hardened[0].replaced


class TestOnRealData:
    """Features of very different values share a GenAgg: sets drawn from the quantiles of all mix what never meets."""

    def model(self):
        torch.manual_seed(0)
        model = Net(GenAgg(), GenAgg())
        with torch.no_grad():
            for conv in model.convs:
                conv.aggr_module.f.omega.copy_(torch.tensor([4.0, 0.0, 0.0]))
        return model

    def x(self):
        return 0.3 * X + torch.tensor([-4.0, -1.0, 2.0, 5.0])

    def test_a_and_b_are_those_of_the_data(self):
        model, x = self.model(), self.x()
        model(x, EDGES)
        model.eval().requires_grad_(False)
        y = model(x, EDGES)

        def error(**options):
            hard = harden(model, 0.5, **options)
            assert all(one.replaced for one in hard.hardened)
            assert not hard.training
            return float((hard(x, EDGES) - y).square().mean())

        fitted = error(run=lambda m: m(x, EDGES))
        assert fitted < 0.5 * error()
        assert fitted < 0.5 * error(calibrate=False)

    def test_the_fit_is_the_best_there_is(self):
        """Of the first layer, whose input no other has changed."""
        model, x = self.model().eval(), self.x()
        hard = harden(model, 0.5, run=lambda m: m(x, EDGES))
        row, scaled = hard.hardened[0], hard.convs[0].aggr_module
        source, index = EDGES
        wanted = model.convs[0].aggr_module(x[source], index, dim_size=30)
        plain = standard(row.nearest)(x[source], index, dim_size=30)
        there = index.bincount(minlength=30) > 0
        for i, (s, y) in enumerate(zip(plain[there].double().t(), wanted[there].detach().double().t(), strict=True)):
            a, b = torch.linalg.lstsq(torch.stack([s, torch.ones_like(s)], 1), y.unsqueeze(1)).solution.flatten()
            assert scaled.scale[i].item() == pytest.approx(a.item(), rel=1e-3)
            assert scaled.shift[i].item() == pytest.approx(b.item(), rel=1e-3, abs=1e-4)
        assert row.scale == pytest.approx(scaled.scale.mean().item(), rel=1e-5)

    def test_each_feature_has_its_own(self):
        torch.manual_seed(0)
        agg, index = GenAgg(channels=4), torch.arange(30) // 4
        hard = harden(agg, 0.3, run=lambda m: m(self.x(), index))
        assert len({one.scale for one in hard.hardened}) == 4
        y, z = agg(self.x(), index), hard(self.x(), index)
        worse = harden(agg, 0.3, calibrate=False, run=lambda m: m(self.x(), index))(self.x(), index)
        assert (((z - y) ** 2).mean(0) <= ((worse - y) ** 2).mean(0) + 1e-6).all()

    def test_the_correlation_is_that_of_the_data(self):
        agg, index = GenAgg(), torch.arange(30) // 4
        row = harden(agg, 0.01, run=lambda m: m(self.x(), index)).hardened[0]
        y, s = (v(self.x(), index).detach() for v in (agg, standard(row.nearest)))
        y, s = ((v - v.mean(0)).flatten() for v in (y, s))  # within each feature
        assert row.correlation == pytest.approx(float(torch.corrcoef(torch.stack([y, s]))[0, 1]), abs=1e-3)


def test_bad_input():
    with pytest.raises(ValueError, match="no GenAgg in Linear"):
        harden(torch.nn.Linear(1, 1))
    for bad in (2.0, "0.9"):
        with pytest.raises(ValueError, match="threshold must be a number above 0"):
            harden(GenAgg(), threshold=bad)
    with pytest.raises(TypeError, match="model must be"):
        harden("model")
