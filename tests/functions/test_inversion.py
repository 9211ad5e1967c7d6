"""The inversion objective: its pull arrives with the user's own backward, and nothing else changes."""

import copy

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from fmean import GenAgg
from fmean.functions import MLPAutoencoder

X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
Y = X.amax(0, keepdim=True)


def pair(inversion=1.0, **arguments):
    """The same GenAgg with the objective and without it."""
    torch.manual_seed(1)
    on = GenAgg(MLPAutoencoder(inversion=inversion, **arguments))
    off = copy.deepcopy(on)
    off.f.inversion = 0.0
    return on, off


def gradients(agg, loss=lambda y: (y - Y).square().mean(), run=None):
    agg.zero_grad()
    x = X.clone().requires_grad_()
    loss((agg if run is None else run)(x)).backward()
    return {"x": x.grad, **{name: p.grad for name, p in agg.named_parameters()}}


def pull(**arguments):
    """What the objective adds to every gradient."""
    on, off = pair()
    with_it, without = gradients(on, **arguments), gradients(off, **arguments)
    return {name: with_it[name] - without[name] for name in with_it}


def test_it_changes_no_forward_value():
    for arguments in ({}, {"batch_norm": True}, {"layer_sizes": (1, 4, 1)}):
        on, off = pair(**arguments)
        for _ in range(3):
            assert torch.equal(on(X), off(X))
        assert torch.equal(on.eval()(X), off.eval()(X))


def test_its_gradient_is_that_of_the_loss_times_the_size_of_the_users():
    on, _ = pair()
    y = on(X).detach().requires_grad_()
    (grad_y,) = torch.autograd.grad((y - Y).square().mean(), y)
    loss = on.f.inversion_loss(X)
    expected = torch.autograd.grad(loss, list(on.f.parameters()))
    extra = pull()
    for (name, _), gradient in zip(on.f.named_parameters(), expected, strict=True):
        torch.testing.assert_close(extra[f"f.{name}"], grad_y.abs().sum() * gradient, rtol=1e-4, atol=1e-6)
    for name in ("x", "alpha", "beta"):
        assert (extra[name] == 0).all()


def test_the_value_can_be_read():
    on, _ = pair()
    assert on.f.last_inversion_loss.isnan()
    on(X)
    torch.testing.assert_close(on.f.last_inversion_loss, on.f.inversion_loss(X).detach())
    assert "last_inversion_loss" not in " ".join(on.state_dict())


@pytest.mark.parametrize("scale", [2.0**16, 0.25])
def test_a_gradient_scaler_scales_it_too(scale):
    plain, scaled = pull(), pull(loss=lambda y: (y - Y).square().mean() * scale)
    for name in plain:
        torch.testing.assert_close(scaled[name] / scale, plain[name], rtol=1e-3, atol=1e-6)


def test_gradient_accumulation_adds_up():
    """k equal batches, each with loss/k, pull as one does."""
    on, _ = pair()
    whole = gradients(on)
    on.zero_grad()
    for _ in range(4):
        ((on(X) - Y).square().mean() / 4).backward()
    for name, p in on.named_parameters():
        torch.testing.assert_close(p.grad, whole[name], rtol=1e-4, atol=1e-6)


def test_autocast_and_a_real_scaler():
    on, _ = pair()
    plain = gradients(on)
    on.zero_grad()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimiser = torch.optim.SGD(on.parameters(), lr=0.0)
    with torch.autocast("cpu", torch.bfloat16):
        loss = (on(X) - Y).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimiser)
    for name, p in on.named_parameters():
        torch.testing.assert_close(p.grad, plain[name], rtol=1e-3, atol=1e-5)


def test_nothing_happens_without_gradients_or_in_eval_mode():
    on, off = pair()
    with torch.no_grad():
        assert not on(X).requires_grad
    assert on.f.last_inversion_loss.isnan()
    on.eval()
    off.eval()
    for a, b in zip(gradients(on).values(), gradients(off).values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant):
    on, _ = pair()
    plain = gradients(on)
    again = gradients(on, run=lambda x: checkpoint(on, x, use_reentrant=reentrant))
    for name in plain:
        torch.testing.assert_close(again[name], plain[name])


def test_compile():
    on, _ = pair()
    plain = gradients(on)
    torch._dynamo.reset()
    run = torch.compile(on, fullgraph=True, backend="aot_eager")
    for name, gradient in gradients(on, run=run).items():
        torch.testing.assert_close(gradient, plain[name], rtol=1e-4, atol=1e-6)
    assert on.f.last_inversion_loss.isfinite()


def test_distributed_data_parallel():
    on, _ = pair()
    plain = gradients(on)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        run = DistributedDataParallel(on)
        for name, gradient in gradients(on, run=run).items():
            torch.testing.assert_close(gradient, plain[name])
    finally:
        torch.distributed.destroy_process_group()


def test_a_frozen_f_still_says_what_its_inverse_is_worth():
    """In training mode, with a gradient of x alone: on a CPU that has kernels of its own."""
    for sets in ({"index": torch.arange(X.size(0)) // 2}, {}):
        agg = GenAgg(MLPAutoencoder((1, 3, 1))).requires_grad_(False)
        agg(X.clone().requires_grad_(), **sets).square().sum().backward()
        assert agg.f.last_inversion_loss > 0


def test_per_feature_each_minds_its_own():
    """Trained side by side as features, or alone: the same."""
    torch.manual_seed(0)
    many = GenAgg(MLPAutoencoder(inversion=1.0, channels=3), channels=3)
    alone = [many.feature(i) for i in range(3)]
    (many(X) - Y).square().sum().backward()
    for i, agg in enumerate(alone):
        (agg(X[:, [i]]) - Y[:, [i]]).square().sum().backward()
        torch.testing.assert_close(many.f.encoder.layers[0].grad[i], agg.f.encoder.layers[0].grad, rtol=1e-4, atol=1e-6)


def test_training_makes_the_inverse_an_inverse():
    """Learning the mean of sets: f⁻¹ ∘ f comes close to ±x with the objective, and not without it."""
    errors = {}
    for agg, name in zip(pair(), ("on", "off"), strict=True):
        optimiser = torch.optim.Adam(agg.parameters(), lr=0.02)
        generator = torch.Generator().manual_seed(2)
        for _ in range(800):
            x = torch.randn(5, 256, generator=generator)
            optimiser.zero_grad()
            (agg(x) - x.mean(0)).square().mean().backward()
            optimiser.step()
        x = torch.linspace(-2, 2, 101)
        errors[name] = (agg.f.inverse(agg.f(x)).abs() - x.abs()).abs().mean().item()
    assert errors["on"] < 0.1
    assert errors["on"] < 0.5 * errors["off"]
