"""Defects that were found once."""

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphConv

from fmean import STANDARD, GenAgg, augmented_f_mean, distributive_operators, standard
from fmean.functions import Exp, Identity, MLPAutoencoder, Power, SinhLinear

from .functions.test_functions import EVERY_F

INDEX = torch.tensor([0, 1, 0, 2, 2, 1, 0])


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("name", sorted(set(EVERY_F) - {"mlp_batch_norm"}))
def test_what_has_no_weight_leaves_no_trace_in_the_gradients(name, value):
    f = EVERY_F[name](1)
    beta = torch.tensor(0.5, requires_grad=True)

    def gradients(x, weight):
        x = torch.tensor(x).unsqueeze(-1).requires_grad_()
        y = augmented_f_mean(x, f, 0.3, beta, weight=torch.tensor(weight))
        leaves = [x, beta, *f.parameters()]
        x_grad, *rest = torch.autograd.grad(y.sum(), leaves, allow_unused=True, materialize_grads=True)
        return x_grad[:2], *rest

    for a, b in zip(gradients([1.0, 3.0, value], [1.0, 1.0, 0.0]), gradients([1.0, 3.0], [1.0, 1.0]), strict=True):
        torch.testing.assert_close(a, b)


def test_the_inversion_objective_minds_the_weights():
    f = MLPAutoencoder(inversion=1.0)
    losses = []
    for x, weight in [([1.0, 2.0, 1e4], [2.0, 1.0, 0.0]), ([1.0, 1.0, 2.0], [1.0, 1.0, 1.0])]:
        augmented_f_mean(torch.tensor(x).unsqueeze(-1), f, weight=torch.tensor(weight))
        losses.append(f.last_inversion_loss.clone())
    torch.testing.assert_close(*losses)


@pytest.mark.parametrize("name", ["sinh", "mlp", "invertible", *STANDARD])
def test_torch_func(name):
    agg = GenAgg(name).double() if name not in STANDARD else standard(name).double()
    x = torch.randn(7, 2, dtype=torch.float64)

    def loss(x):
        return agg(x, INDEX, dim_size=3).square().sum()

    z = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(z), z)
    torch.testing.assert_close(torch.func.grad(loss)(x), expected)
    each = torch.func.vmap(torch.func.grad(loss))(torch.stack([x, 2 * x]))
    torch.testing.assert_close(each[0], expected)


def test_vmap_over_index_and_weight():
    agg, x = standard("root_mean_square"), torch.randn(7, 2)
    index = torch.stack([INDEX, INDEX.flip(0)])
    y = torch.vmap(lambda i: agg(x, i, dim_size=3))(index)
    torch.testing.assert_close(y[1], agg(x, index[1], dim_size=3))
    weight = torch.rand(2, 7)
    y = torch.vmap(lambda w: augmented_f_mean(x, agg.f, index=INDEX, dim_size=3, weight=w))(weight)
    torch.testing.assert_close(y[1], augmented_f_mean(x, agg.f, index=INDEX, dim_size=3, weight=weight[1]))


@pytest.mark.parametrize("f", [Exp(), Power(2), Identity(), SinhLinear().double()])
def test_a_weight_of_zero_has_its_true_gradient(f):
    x = torch.tensor([[1.0], [3.0], [5.0]], dtype=torch.float64)

    def gradient(w):
        w = torch.tensor([1.0, 1.0, w], dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(augmented_f_mean(x, f, 1.0, weight=w).sum(), w)[0]

    torch.testing.assert_close(gradient(0.0), gradient(1e-9), rtol=1e-6, atol=1e-6)


def test_a_product_of_many_equal_numbers():
    x = torch.cat([torch.full((4011, 1), 196960.453125), torch.full((5989, 1), 0.000284581707092)])
    expected = x.double().log().sum().exp().item()
    assert standard("product")(x).item() == pytest.approx(expected, rel=1e-4)


@pytest.fixture(scope="module")
def process_group():
    """One for all: on a busy machine gloo now and then hangs when it is taken down, under PyG's own sum as well."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("f", ["sinh", "mlp", "invertible", "mean", "max"])
def test_a_graph_without_edges_under_ddp(f):
    conv = DistributedDataParallel(GraphConv(4, 4, aggr=GenAgg(f)))
    for edges in (0, 5, 0, 5):
        y = conv(torch.randn(6, 4), torch.randint(0, 6, (2, edges)))
        y.square().sum().backward()
        assert y.isfinite().all()


@pytest.mark.parametrize("channels", [1, 2])
def test_elements_that_are_alike_but_for_rounding_do_not_share_a_gradient(channels):
    """0.001 and 0.002 less a third of a million are the same float32."""
    agg = GenAgg("min", beta=1.0, channels=channels)
    x = torch.tensor([[1e-3, 2e-3], [2e-3, 1e-3], [1e6, 1e6]], requires_grad=True)
    agg(x, torch.zeros(3, dtype=torch.long)).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([[2, -1], [-1, 2], [-1, -1]]) / 3)


def test_a_fixed_beta_may_be_changed():
    x = torch.randn(9, 2)
    zero = torch.zeros(1, 2)
    agg = GenAgg("mean", learn_beta=False)
    assert (agg(x) != 0).all()
    agg.beta.fill_(1.0)
    torch.testing.assert_close(agg(x), zero)
    agg.beta = torch.tensor(0.0)
    assert (agg(x) != 0).all()
    torch.testing.assert_close(torch.func.functional_call(agg, {"beta": torch.tensor(1.0)}, (x,)), zero)
    assert (agg(x) != 0).all()


def test_a_zero_beside_tiny_numbers_has_a_finite_gradient():
    for f in (Power(-1), Power(-3)):
        x = torch.tensor([[0.0], [1e-10], [1e-20]], requires_grad=True)
        y = augmented_f_mean(x, f)
        assert y.item() == 0
        assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


def test_psi_of_large_numbers():
    f = SinhLinear()
    with torch.no_grad():
        f.rho.fill_(0.0)
        f.c.fill_(0.0)
    agg = GenAgg(f).requires_grad_(False)
    x, c = torch.tensor([[30.0], [60.0]]), torch.tensor(30.0)
    for psi in distributive_operators(agg):
        y = psi(c, agg(x))
        assert y.isfinite().all()
        torch.testing.assert_close(agg(psi(c, x)), y, rtol=1e-4, atol=1e-4)


def test_a_mean_of_the_largest_numbers():
    x = torch.full((2, 1), 3e38)
    assert standard("mean")(x).item() == pytest.approx(3e38)
    assert standard("standard_deviation")(x).item() == 0
