"""An f that begins at the scale of the data."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv

import fmean.nn
from fmean import GenAgg, rescale
from fmean.functions import InvertibleNN, Mixture, MLPAutoencoder, Power, Sinh, SinhLinear
from tests.functions.test_functions import EVERY_F

LEARNABLE = ["sinh_linear", "sinh_log", "magnitude", "sinh", "mlp", "mlp_scalar", "mlp_batch_norm"]
LEARNABLE += ["invertible", "invertible_magnitude"]
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2], [1, 2, 3, 4, 5, 0, 3, 5]])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", LEARNABLE)
def test_an_aggregation_becomes_s_times_itself_of_x_over_s(name, channels):
    s = torch.tensor([0.01, 0.5, 30.0], dtype=torch.float64)[:channels].squeeze()
    f = EVERY_F[name](channels)
    agg = GenAgg(f, alpha=0.3, beta=0.4, channels=channels).double().eval()
    x, index = torch.randn(40, 3, dtype=torch.float64), torch.arange(40) % 7
    wanted = s * agg(x / s, index)
    agg.f.rescale(s)
    torch.testing.assert_close(agg(x, index), wanted, atol=1e-7, rtol=1e-5)


class Deep(nn.Module):
    def __init__(self, kind, make, depth=3):
        super().__init__()
        self.convs = nn.ModuleList(kind(4, 4, aggr=make()) for _ in range(depth))
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x, edge_index):
        for conv in self.convs:
            x = torch.tanh(conv(x, edge_index))
        return self.norm(x)


@pytest.mark.parametrize("kind", [GraphConv, fmean.nn.GraphConv])
def test_every_layer_begins_at_the_scale_of_what_comes_to_it(kind):
    torch.manual_seed(0)
    model, x = Deep(kind, lambda: GenAgg(SinhLinear())), 1e-3 * torch.randn(6, 4)
    starts = [conv.aggr_module.f.p.item() for conv in model.convs]
    given = []
    mean = model.norm.running_mean.clone()
    assert rescale(model, lambda model: model(x, EDGES)) is model
    torch.testing.assert_close(model.norm.running_mean, mean)  # as it was
    hooks = [conv.aggr_module.register_forward_pre_hook(lambda _, args: given.append(args[0])) for conv in model.convs]
    model(x, EDGES)
    for conv, start, messages in zip(model.convs, starts, given, strict=True):
        spread = messages.std(correction=0).item()
        assert conv.aggr_module.f.p.item() * spread == pytest.approx(start, rel=1e-4)
        assert not conv.aggr_module.f.rho.grad
    for hook in hooks:
        hook.remove()


def test_each_feature_has_a_scale_of_its_own():
    agg = GenAgg(Sinh(3), channels=3)
    start = agg.f.parts[0].p.detach().clone()
    x = torch.randn(50, 3) * torch.tensor([1e-3, 1.0, 1e3])
    rescale(agg, lambda agg: agg(x, torch.arange(50) % 5))
    torch.testing.assert_close(agg.f.parts[0].p.detach(), start / x.std(0, correction=0))


@pytest.mark.parametrize("value", [0.0, 5.0, torch.nan, torch.inf])
def test_elements_without_a_spread_change_nothing(value):
    for f in (Sinh(), MLPAutoencoder(), InvertibleNN(), Mixture([SinhLinear(), Power(2)])):
        agg = GenAgg(f)
        before = [p.clone() for p in agg.parameters()]
        rescale(agg, lambda agg: agg(torch.full((6, 2), value), torch.zeros(6, dtype=torch.long)))
        for now, then in zip(agg.parameters(), before, strict=True):
            torch.testing.assert_close(now, then, rtol=0, atol=0)


def test_what_is_fixed_stays_as_it_is():
    model = Deep(GraphConv, lambda: GenAgg("max"))
    x = torch.randn(6, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rescale(model, lambda model: model(x, EDGES))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_hooks_are_gone_even_after_an_error():
    agg = GenAgg()

    def fail(agg):
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        rescale(agg, fail)
    assert not agg._forward_pre_hooks


def test_bad_input():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got str"):
        rescale("model", print)
    with pytest.raises(ValueError, match="there is no GenAgg in Linear"):
        rescale(nn.Linear(2, 2), print)
    with pytest.raises(ValueError, match="p must be above 0, got 0"):
        SinhLinear(p=0.0)
