"""Properties of the formula, on sets that hypothesis makes up."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fmean import STANDARD, GenAgg, augmented_f_mean, standard

from .functions.test_functions import EVERY_F

SOME_F = sorted(set(EVERY_F) - {"mlp_batch_norm"})  # which mixes the sets of a batch in training


@st.composite
def problems(draw):
    """f, α, β and sets with empty, single and large ones among them."""
    torch.manual_seed(draw(st.integers(0, 10_000)))
    f = EVERY_F[draw(st.sampled_from(SOME_F))](1).double()
    sizes = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    features = draw(st.integers(1, 3))
    x = torch.randn(sum(sizes), features, dtype=torch.float64) * draw(st.sampled_from([0.1, 1.0, 3.0]))
    index = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    alpha = draw(st.sampled_from([0.0, 0.5, 1.0]))
    beta = draw(st.sampled_from([0.0, 0.5, 1.0])) if f.alphas == 1 else 0.25
    return f, x, index, len(sizes), alpha, beta


def loop(x, f, alpha, beta, index, size, weight=None):
    """The formula, written out for one set and one feature at a time, without any scaling."""
    y = x.new_zeros(size, x.size(1))
    for i in range(size):
        for j in range(x.size(1)):
            elements = x[index == i, j]
            n = elements.numel()
            if n == 0:
                continue
            z = elements - beta * elements.mean()
            s = f(z).amax(0) if f.reduction == "max" else f(z).sum(0) * n ** (alpha - 1)
            y[i, j] = f.inverse(s)
    return y


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)


@given(problems())
def test_index_ptr_dense_and_a_loop_agree(problem):
    f, x, index, size, alpha, beta = problem
    y = augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size)
    close(y, loop(x, f, alpha, beta, index, size))
    ptr = torch.tensor([0, *torch.bincount(index, minlength=size).cumsum(0).tolist()])
    assert torch.equal(augmented_f_mean(x, f, alpha, beta, ptr=ptr), y)
    assert torch.equal(augmented_f_mean(x, f, alpha, beta, index=index, ptr=ptr), y)
    for i in range(size):
        close(augmented_f_mean(x[index == i], f, alpha, beta), y[[i]])


@given(problems())
def test_the_order_of_elements_does_not_matter(problem):
    f, x, index, size, alpha, beta = problem
    order = torch.randperm(len(x))
    close(
        augmented_f_mean(x[order], f, alpha, beta, index=index[order], dim_size=size),
        augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size),
    )


@given(problems())
def test_a_weight_is_a_repetition(problem):
    f, x, index, size, alpha, beta = problem
    weight = torch.randint(0, 4, (len(x),))
    y = augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size, weight=weight.double())
    close(
        y,
        augmented_f_mean(
            x.repeat_interleave(weight, 0), f, alpha, beta, index=index.repeat_interleave(weight), dim_size=size
        ),
    )
    full = weight.double().unsqueeze(-1).expand_as(x)
    assert torch.equal(augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size, weight=full), y)


@given(problems())
def test_leading_and_trailing_dimensions(problem):
    f, x, index, size, alpha, beta = problem
    y = augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size)
    stacked = augmented_f_mean(torch.stack([x, x + 0]), f, alpha, beta, index=index, dim_size=size)
    close(stacked, torch.stack([y, y]))
    close(
        augmented_f_mean(x.unsqueeze(-1).expand(-1, -1, 2), f, alpha, beta, index=index, dim_size=size, dim=0)[..., 1],
        y,
    )
    close(augmented_f_mean(x.T, f, alpha, beta, index=index, dim_size=size, dim=-1), y.T)
    close(augmented_f_mean(x[:, 0], f, alpha, beta, index=index, dim_size=size, dim=0), y[:, 0])


@given(problems())
def test_one_feature_does_not_see_another(problem):
    f, x, index, size, alpha, beta = problem
    y = augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size)
    x = x.clone()
    x[:, 0] = torch.nan
    close(augmented_f_mean(x, f, alpha, beta, index=index, dim_size=size)[:, 1:], y[:, 1:])


def test_a_weight_of_zero_leaves_out_anything():
    x = torch.tensor([[1.0], [3.0], [torch.inf], [torch.nan], [1e30]])
    weight = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    for name in STANDARD:
        agg = standard(name)
        y = augmented_f_mean(x, agg.f, agg.alpha, agg.beta, weight=weight)
        torch.testing.assert_close(y, agg(x[:2]))


def test_weights_learn():
    x, index = torch.randn(8, 2, dtype=torch.float64), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
    weight = (torch.rand(8, dtype=torch.float64) + 0.1).requires_grad_()
    f = GenAgg().f.double()
    assert torch.autograd.gradcheck(lambda w: augmented_f_mean(x, f, 0.5, 0.5, index=index, weight=w), (weight,))


def test_alpha_and_beta_per_feature():
    x, index = torch.randn(30, 3), torch.randint(0, 4, (30,))
    alpha, beta = torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.0, 1.0, 0.5])
    f = standard("root_mean_square").f
    y = augmented_f_mean(x, f, alpha, beta, index=index)
    for i in range(3):
        torch.testing.assert_close(y[:, [i]], augmented_f_mean(x[:, [i]], f, alpha[i], beta[i], index=index))


def test_alpha_per_channel():
    f = GenAgg().f
    x = torch.randn(30, 2)
    alpha = torch.tensor([0.0, 0.5, 1.0])
    parts = [augmented_f_mean(x, f.channel(i), alpha[i]) for i in range(3)]
    y = sum(w * part for w, part in zip(f.w, parts, strict=True))
    torch.testing.assert_close(augmented_f_mean(x, f, alpha), y)


def test_a_users_own_f():
    class Cube(torch.nn.Module):
        def forward(self, x):
            return x**3

        def inverse(self, s):
            return s.sign() * s.abs() ** (1 / 3)

    x = torch.tensor([[1.0], [2.0], [3.0]])
    assert augmented_f_mean(x, Cube()).item() == pytest.approx(12 ** (1 / 3))
    assert GenAgg(Cube())(x).item() == pytest.approx(12 ** (1 / 3))


def test_infinities_pass_through():
    for name, expected in [
        ("log_sum_exp", torch.inf),
        ("max", torch.inf),
        ("root_mean_square", torch.inf),
        ("sum", torch.inf),
    ]:
        assert standard(name)(torch.tensor([[1.0], [torch.inf]])).item() == expected


def test_the_same_answer_twice():
    """Run to run, on one machine, to the last bit."""
    x, index = torch.randn(20_000, 16), torch.randint(0, 500, (20_000,))
    agg = GenAgg()
    assert torch.equal(agg(x, index, dim_size=500), agg(x, index, dim_size=500))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_deterministic_on_request_on_a_gpu():
    x, index = torch.randn(20_000, 16, device="cuda"), torch.randint(0, 500, (20_000,), device="cuda")
    agg = GenAgg().cuda()
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(agg(x, index, dim_size=500), agg(x, index, dim_size=500))
    finally:
        torch.use_deterministic_algorithms(False)
