import numpy as np
import pytest
import torch

from fmean import STANDARD, standard

from .reference import TOLERANCE, error

PAPER = [
    "mean",
    "sum",
    "product",
    "min_magnitude",
    "max_magnitude",
    "min",
    "max",
    "harmonic_mean",
    "geometric_mean",
    "root_mean_square",
    "euclidean_norm",
    "standard_deviation",
    "log_sum_exp",
]


def normal(rng, n):
    return rng.normal(size=n)


def wide(rng, n):
    return rng.choice([-1, 1], n) * 10 ** rng.uniform(-6, 6, n)


def negative(rng, n):
    return -np.abs(rng.normal(size=n)) - 0.01


def zeros(rng, n):
    return np.where(rng.random(n) < 0.3, 0.0, rng.normal(size=n))


def all_zero(rng, n):
    return np.zeros(n)


def equal(rng, n):
    return np.full(n, 0.1)


def large(rng, n):
    return rng.normal(size=n) * 1e30


def small(rng, n):
    return rng.normal(size=n) * 1e-30


def offset(rng, n):
    return 1000 + rng.normal(size=n)


def unit_product(rng, n):
    """Magnitudes from 1e-4 to 1e4 whose product is near 1, in sets of any size."""
    logs = rng.uniform(-9, 9, n)
    return rng.choice([-1, 1], n) * np.exp(logs - logs.mean())


DATA = [normal, wide, negative, zeros, all_zero, equal, large, small, offset, unit_product]
SIZES = [1, 2, 3, 7, 30, 100, 1000, 10_000]


def test_the_thirteen_in_the_papers_order():
    assert list(STANDARD) == PAPER


@pytest.mark.parametrize("data", DATA, ids=lambda data: data.__name__)
@pytest.mark.parametrize("name", STANDARD)
def test_agrees_with_the_definition(name, data, device):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.concatenate([data(rng, n) for n in SIZES])).float()
    index = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    order = torch.randperm(len(x))
    x, index = x[order], index[order]
    z = x.to(device).unsqueeze(-1).requires_grad_()
    y = standard(name).to(device)(z, index.to(device), dim_size=len(SIZES))
    assert error(name, y.detach().cpu()[:, 0], x, index, len(SIZES)) <= TOLERANCE[name]
    (gradient,) = torch.autograd.grad(y.sum(), z)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", STANDARD)
@pytest.mark.parametrize("x", [[0.0], [2.5], [-3.0], [0.0, 0.0], [1.0, 1.0]])
def test_gradients_of_everything_are_finite_on_small_sets(name, x):
    agg = standard(name)
    x = torch.tensor(x).unsqueeze(-1).requires_grad_()
    alpha, beta = agg.alpha.clone().requires_grad_(), agg.beta.clone().requires_grad_()
    from fmean import augmented_f_mean

    y = augmented_f_mean(x, agg.f, alpha, beta)
    for gradient in torch.autograd.grad(y.sum(), (x, alpha, beta), allow_unused=True, materialize_grads=True):
        assert gradient.isfinite().all()


def test_ties_share_the_gradient_of_a_maximum():
    x = torch.tensor([[1.0], [3.0], [3.0]], requires_grad=True)
    standard("max")(x).sum().backward()
    assert x.grad.flatten().tolist() == [0, 0.5, 0.5]


def test_nothing_is_left_to_learn():
    assert all(not list(standard(name).parameters()) for name in STANDARD)


def test_unknown_name():
    with pytest.raises(ValueError, match="unknown standard aggregator 'median'; the 13 are mean, sum"):
        standard("median")
