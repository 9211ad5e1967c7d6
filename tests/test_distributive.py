import pytest
import torch

from fmean import STANDARD, GenAgg, distributive_operators
from fmean.functions import Identity, InvertibleNN, MLPAutoencoder, Power, Sinh
from fmean.standard import standard

A, B = torch.tensor([1.5, 0.7, 2.0]), torch.tensor([0.4, 3.0, 1.1])

# The paper's table, at positive a and b; where α = 0 the theorem has both, though the table may list one.
TABLE = {
    "mean": [A + B, A * B],
    "sum": [A * B],
    "product": [A ** B.log()],
    "min_magnitude": [torch.minimum(A, B), A * B],
    "max_magnitude": [torch.maximum(A, B), A * B],
    "min": [torch.minimum(A, B), A + B],
    "max": [torch.maximum(A, B), A + B],
    "harmonic_mean": [A * B / (A + B), A * B],
    "geometric_mean": [A * B, A ** B.log()],
    "root_mean_square": [(A**2 + B**2).sqrt(), A * B],
    "euclidean_norm": [A * B],
    "standard_deviation": [A * B],
    "log_sum_exp": [A + B],
}


def distributes(agg, psi, x, c):
    y = psi(c, agg(x))
    torch.testing.assert_close(agg(psi(c, x)), y, rtol=1e-4, atol=1e-4 * max(1.0, y.abs().median().item()))


@pytest.mark.parametrize("name", STANDARD)
def test_the_papers_table(name):
    values = [psi(A, B) for psi in distributive_operators(name)]
    assert len(values) == len(TABLE[name])
    for value, expected in zip(values, TABLE[name], strict=True):
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("name", STANDARD)
def test_every_operator_distributes_on_random_data(name):
    """Of both signs."""
    agg = standard(name)
    for seed in range(20):
        torch.manual_seed(seed)
        x, c = torch.randn(7, 4), torch.randn(())
        for psi in distributive_operators(agg):
            distributes(agg, psi, x, c)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_random_invertible_network(alpha):
    for seed in range(10):
        torch.manual_seed(seed)
        agg = GenAgg(InvertibleNN(), alpha=alpha).requires_grad_(False)
        operators = distributive_operators(agg)
        assert len(operators) == (2 if alpha == 0 else 1)
        for psi in operators:
            distributes(agg, psi, torch.randn(7, 4), torch.randn(()))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("i", range(3))
def test_each_channel_of_sinh_alone(i, alpha):
    for seed in range(10):
        torch.manual_seed(seed)
        f = Sinh().channel(i).requires_grad_(False)
        agg = GenAgg(f, alpha=alpha).requires_grad_(False)
        for psi in distributive_operators(agg):
            distributes(agg, psi, torch.randn(7, 4), torch.randn(()))


def test_scaling_commutes_with_centring():
    agg = GenAgg(Power(3.0), alpha=0.5, beta=0.7).requires_grad_(False)
    (psi,) = distributive_operators(agg)
    distributes(agg, psi, torch.randn(7, 4), torch.tensor(-2.0))
    agg = GenAgg(Identity(), beta=0.5).requires_grad_(False)
    (psi,) = distributive_operators(agg)
    distributes(agg, psi, torch.randn(7, 4), torch.tensor(-2.0))


class NotAnInverse(torch.nn.Module):
    def forward(self, x):
        return x**2

    def inverse(self, s):
        return s


@pytest.mark.parametrize(
    ("agg", "kind", "message"),
    [
        ("median", ValueError, "unknown standard aggregator 'median'"),
        (Identity(), TypeError, "agg must be a GenAgg or the name of a standard aggregator, got Identity"),
        (GenAgg(), ValueError, r"needs a scalar f, but Sinh has 3 channels, .* try one channel, f.channel\(i\)"),
        (GenAgg("mlp"), ValueError, "needs a scalar f, but MLPAutoencoder has 4 channels"),
        (
            GenAgg(MLPAutoencoder((1, 4, 1))),
            ValueError,
            "needs an exact inverse, but that of MLPAutoencoder is learned",
        ),
        (GenAgg(InvertibleNN(), beta=0.5), ValueError, "needs β = 0, but β is 0.5"),
        (GenAgg(NotAnInverse()), ValueError, "misses"),
    ],
)
def test_errors_say_why(agg, kind, message):
    with pytest.raises(kind, match=message):
        distributive_operators(agg)
