"""One class of checks that every f goes through."""

import copy
import math
import pickle

import pytest
import torch
from torch.autograd import gradcheck

from fmean import augmented_f_mean
from fmean.functions import (
    Exp,
    Identity,
    InvertibleNN,
    LogAbs,
    Magnitude,
    Mixture,
    MLPAutoencoder,
    Power,
    Sigmoid,
    Sinh,
    SinhLinear,
    SinhLog,
    Tanh,
    function,
)

EVERY_F = {
    "identity": lambda c: Identity(),
    "log_abs": lambda c: LogAbs(),
    "square": lambda c: Power(2),
    "root": lambda c: Power(0.5),
    "reciprocal": lambda c: Power(-1),
    "power_inf": lambda c: Power(math.inf),
    "power_minus_inf": lambda c: Power(-math.inf),
    "exp": lambda c: Exp(),
    "exp_minus_2": lambda c: Exp(-2),
    "exp_inf": lambda c: Exp(math.inf),
    "exp_minus_inf": lambda c: Exp(-math.inf),
    "sigmoid": lambda c: Sigmoid(),
    "tanh": lambda c: Tanh(),
    "mixture": lambda c: Mixture([Identity(), Power(2), LogAbs()], c),
    "sinh_linear": SinhLinear,
    "sinh_log": SinhLog,
    "magnitude": Magnitude,
    "sinh": Sinh,
    "mlp": lambda c: MLPAutoencoder(channels=c),
    "mlp_scalar": lambda c: MLPAutoencoder((1, 3, 1), channels=c),
    "mlp_batch_norm": lambda c: MLPAutoencoder((1, 2, 2), batch_norm=True, channels=c),
    "invertible": lambda c: InvertibleNN(channels=c),
    "invertible_magnitude": lambda c: InvertibleNN(magnitude=True, channels=c),
}
SIGNED = {"identity", "exp", "exp_minus_2", "exp_inf", "exp_minus_inf", "sigmoid", "tanh", "sinh_linear", "invertible"}


@pytest.fixture(params=EVERY_F)
def name(request):
    return request.param


@pytest.fixture
def f(name):
    return EVERY_F[name](1)


class TestEveryFunction:
    def test_shapes(self, f):
        for shape in [(), (5,), (4, 3), (2, 3, 4)]:
            if isinstance(f, MLPAutoencoder) and f.batch_norm and shape == ():
                continue  # no batch to normalise over
            x = torch.randn(shape)
            s = f(x)
            assert s.shape == ((*shape, f.k) if f.k > 1 else shape)
            assert f.inverse(s).shape == shape

    def test_the_inverse_is_exact_where_it_says_so(self, f, name):
        x = torch.randn(500, dtype=torch.float64) * 2
        back = f.double().inverse(f(x))
        if isinstance(f, Mixture):
            w = f.w.detach()
            signed = sum(
                w[i]
                for i, part in enumerate(f.parts)
                if isinstance(part, (Identity, SinhLinear)) and not isinstance(part, SinhLog)
            )
            torch.testing.assert_close(back, signed * x + (1 - signed) * x.abs(), atol=1e-6, rtol=1e-6)
        elif f.exact:
            torch.testing.assert_close(back, x if name in SIGNED else x.abs(), atol=1e-6, rtol=1e-6)
        else:
            assert isinstance(f, MLPAutoencoder)

    def test_the_scaled_sum_is_the_sum(self, f):
        x = torch.randn(6, 50, dtype=torch.float64)
        f.double()
        bound = f.bound(x)
        if bound is None or f.reduction == "max":
            return
        m = bound.amax(0, keepdim=True)
        for shift in (0, 0.5):
            y = f.scaled_inverse(f.scaled(x, m + shift).sum(0), (m + shift)[0])
            torch.testing.assert_close(y, f.inverse(f(x).sum(0)))

    def test_gradcheck(self, f):
        """x, α, β and all parameters of f, in float64."""
        f.double().eval()
        x = torch.tensor([0.3, -1.2, 0.8, 2.5, -0.4, 1.5, -2.2, 0.9], dtype=torch.float64).view(8, 1).requires_grad_()
        index = torch.tensor([0, 1, 0, 2, 2, 0, 2, 4])
        alpha = torch.full((f.alphas,), 0.4, dtype=torch.float64).squeeze().requires_grad_()
        beta = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
        names, values = zip(*f.named_parameters(), strict=True) if list(f.parameters()) else ((), ())

        def y(x, alpha, beta, *values):
            with torch.nn.utils.stateless._reparametrize_module(f, dict(zip(names, values, strict=True))):
                return augmented_f_mean(x, f, alpha, beta, index=index, dim_size=5)

        assert gradcheck(y, (x, alpha, beta, *values))

    def test_second_derivatives(self, f):
        x = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
        y = augmented_f_mean(x, f.double().eval(), 0.5, 0.2)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        if first.requires_grad:
            (second,) = torch.autograd.grad(first.square().sum(), x, allow_unused=True, materialize_grads=True)
            assert second.isfinite().all()

    def test_gradients_are_finite_at_the_edges(self, f):
        """Zeros, equal elements, single elements, large and tiny ones, empty sets."""
        f.eval()
        x = torch.tensor([0, 0, 1, 1, 5, 0, -3, 1e4, -1e4, 1e-8, -1e-8, 1e-30, 30, -30]).view(-1, 1).requires_grad_()
        index = torch.tensor([0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 7])
        if isinstance(f, InvertibleNN):
            x = x.detach().clamp(-100, 100).requires_grad_()
        parameters = list(f.parameters())
        alpha, beta = torch.tensor(0.0, requires_grad=True), torch.tensor(0.5, requires_grad=True)
        y = augmented_f_mean(x, f, alpha, beta, index=index, dim_size=9)
        assert y.isfinite().all()
        leaves = (x, alpha, beta, *parameters)
        for gradient in torch.autograd.grad(y.sum(), leaves, allow_unused=True, materialize_grads=True):
            assert gradient.isfinite().all()

    def test_an_empty_set_gives_zero(self, f):
        y = augmented_f_mean(torch.randn(3, 2), f.eval(), index=torch.tensor([0, 0, 2]), dim_size=4)
        assert (y[[1, 3]] == 0).all()
        assert (y[[0, 2]] != 0).any()
        assert augmented_f_mean(torch.randn(0, 2), f).tolist() == [[0, 0]]

    def test_a_nan_stays_in_its_set(self, f):
        x = torch.randn(6, 2)
        index = torch.tensor([0, 1, 2, 0, 1, 2])
        f.eval()
        clean = augmented_f_mean(x, f, 0.5, 0.5, index=index)
        x[1, 0] = torch.nan
        y = augmented_f_mean(x, f, 0.5, 0.5, index=index)
        assert y[1, 0].isnan()
        y[1, 0] = clean[1, 0]
        assert torch.equal(y, clean)

    def test_held_per_feature(self, name):
        f = EVERY_F[name](3)
        x, index = torch.randn(40, 3), torch.randint(0, 5, (40,))
        f.train()(x)  # running statistics of its own for every feature, if it has any
        f.eval()
        y = augmented_f_mean(x, f, index=index)
        for i in range(3):
            alone = f.feature(i)
            assert alone.channels == 1
            torch.testing.assert_close(augmented_f_mean(x[:, [i]], alone, index=index), y[:, [i]])

    def test_copies(self, f):
        x = torch.randn(20, 2)
        y = augmented_f_mean(x, f.eval())
        for copied in (copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
            assert torch.equal(augmented_f_mean(x, copied), y)
        other = copy.deepcopy(f)
        other.reset_parameters()
        other.load_state_dict(f.state_dict())
        assert torch.equal(augmented_f_mean(x, other), y)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_types(self, f, dtype):
        x, alpha = torch.randn(50, 3).to(dtype), 0.0 if isinstance(f, Sigmoid) else 0.3  # of σ a sum has no f⁻¹
        y = augmented_f_mean(x, f.eval(), alpha, 0.2)
        assert y.dtype == dtype
        exact = augmented_f_mean(x.double(), copy.deepcopy(f).double(), alpha, 0.2)
        tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-4)
        torch.testing.assert_close(y.double(), exact, rtol=tolerance, atol=tolerance)

    def test_a_device_keeps_its_results(self, f, device):
        x = torch.randn(30, 2)
        y = augmented_f_mean(x, f.eval())
        moved = augmented_f_mean(x.to(device), copy.deepcopy(f).to(device))
        assert moved.device.type == device.type
        torch.testing.assert_close(moved.cpu(), y, rtol=1e-4, atol=1e-5)

    def test_reads_as_a_formula(self, f):
        assert "x" in f.formula
        assert "\n" not in repr(f)


@pytest.mark.parametrize("kind", [Power, Exp])
def test_p_must_not_be_zero(kind):
    with pytest.raises(ValueError, match="p must be a number other than 0"):
        kind(0)
    with pytest.raises(ValueError, match="p must be a number other than 0"):
        kind(math.nan)


def test_bad_layer_sizes():
    with pytest.raises(ValueError, match=r"layer_sizes must start at 1 .* got \[2, 4\]"):
        MLPAutoencoder((2, 4))
    with pytest.raises(ValueError, match="layers must be 1 or more, got 0"):
        InvertibleNN(layers=0)


def test_a_mixture_takes_scalar_functions_only():
    with pytest.raises(ValueError, match=r"parts\[1\] = .* has 3 channels"):
        Mixture([Identity(), Sinh()])
    with pytest.raises(ValueError, match="a limit"):
        Mixture([Power(math.inf)])


def test_unknown_function():
    with pytest.raises(ValueError, match="unknown f 'cosh'; known are sinh, mlp, invertible, mean"):
        function("cosh")


def test_an_invertible_network_inverts_in_float32():
    """Not only near 0, and for random networks far from the start."""
    for seed in range(20):
        torch.manual_seed(seed)
        f = InvertibleNN()
        torch.nn.init.normal_(f.weights, 0, 0.4)
        x = torch.linspace(-5, 5, 101)
        torch.testing.assert_close(f.inverse(f(x)), x, atol=2e-3, rtol=1e-3)


def test_sinh_sums_what_overflows():
    """Σ sinh(u) for |u| in the thousands, against exact arithmetic in logs: log Σ e^u − log 2."""
    f = SinhLinear().double()
    with torch.no_grad():
        f.rho.fill_(0.0)
        f.c.fill_(0.0)
    x = torch.tensor([[1000.0], [999.0], [-500.0]], dtype=torch.float64)
    torch.testing.assert_close(
        augmented_f_mean(x, f, alpha=1.0), torch.logsumexp(x[:2], 0, keepdim=True).detach(), rtol=1e-12, atol=0
    )
    assert augmented_f_mean(torch.tensor([[800.0], [-800.0]]), f).item() == 0


def test_where_sinh_linear_begins():
    """Also after a layer has reset it, and for each feature."""
    for f in (SinhLinear(start=2.0, rate=3.0), SinhLinear(500, 2.0, 3.0)):
        for _ in range(2):
            assert f.c.mean().item() == pytest.approx(2.0, abs=0.5)
            assert f.p.mean().item() == pytest.approx(3.0, rel=0.5)
            torch.nn.init.zeros_(f.c)
            f.reset_parameters()
    with pytest.raises(ValueError, match="rate must be above 0, got -1"):
        SinhLinear(rate=-1)


def test_features_may_begin_in_places_of_their_own():
    f = SinhLinear(4, start=[-2.0, 0.0, 2.0, 4.0], rate=(3.0, 1.0, 3.0, 1.0))
    for _ in range(2):
        torch.testing.assert_close(f.c.detach(), torch.tensor([-2.0, 0.0, 2.0, 4.0]), atol=0.6, rtol=0)
        torch.testing.assert_close(f.p.detach(), torch.tensor([3.0, 1.0, 3.0, 1.0]), atol=0, rtol=0.8)
        f.reset_parameters()
    with pytest.raises(ValueError, match="start must be one number, or one for each of 4 features, got 2"):
        SinhLinear(4, start=[0.0, 1.0])
    with pytest.raises(ValueError, match="rate must be above 0, got"):
        SinhLinear(2, rate=[1.0, 0.0])


def test_sinh_becomes_the_mean():
    f = SinhLinear()
    with torch.no_grad():
        f.rho.fill_(-7.0)
        f.c.fill_(0.0)
    x = torch.randn(100, 3)
    torch.testing.assert_close(augmented_f_mean(x, f), x.mean(0, keepdim=True), atol=1e-5, rtol=1e-5)
