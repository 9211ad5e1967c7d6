"""What a GenAgg keeps of the data it has met."""

import copy

import pytest
import torch

import fmean.nn
from fmean import GenAgg, standard
from fmean.seen import EVERY, LEVELS, Seen, _spread


def looks(agg):
    return int(agg.seen.looks)


def test_quantiles_of_elements_and_sizes():
    agg, x = GenAgg(), 3 + 2 * torch.randn(100_000, 4)
    index = torch.arange(100_000) // 10  # sets of 10
    agg(x, index)
    true = torch.quantile(x.flatten()[:400_000], torch.tensor(LEVELS))
    torch.testing.assert_close(agg.seen.values, true, atol=0.6, rtol=0)
    assert (agg.seen.values[1:-1] - true[1:-1]).abs().max() < 0.25
    assert agg.seen.sizes.tolist() == [10.0] * len(LEVELS)


def test_of_each_feature():
    agg = GenAgg(channels=3)
    agg(torch.randn(5000, 3) + torch.tensor([0.0, 10.0, -10.0]))
    medians = agg.seen.values[:, len(LEVELS) // 2]
    torch.testing.assert_close(medians, torch.tensor([0.0, 10.0, -10.0]), atol=0.2, rtol=0)
    assert agg.feature(1).seen.values.tolist() == agg.seen.values[1].tolist()


def test_sizes_leave_out_empty_sets_and_know_ptr_and_one_dense_set():
    for sets, size in (
        ({"index": torch.tensor([0, 0, 5, 5]), "dim_size": 9}, 2),
        ({"ptr": torch.tensor([0, 2, 2, 4])}, 2),
        ({}, 4),
    ):
        agg = GenAgg()
        agg(torch.randn(4, 2), **sets)
        assert agg.seen.sizes.tolist() == [size] * len(LEVELS)


def test_messages_of_a_fused_layer_are_met_with_their_weights():
    conv = fmean.nn.GraphConv(1, 1, aggr=GenAgg())
    x, edges = torch.full((10, 1), 2.0), torch.randint(0, 10, (2, 50))
    conv(x, edges, torch.full((50,), 3.0))
    assert conv.aggr_module.seen.values.tolist() == [6.0] * len(LEVELS)


def test_when_it_looks():
    agg, x = GenAgg(), torch.randn(8, 2)
    for _ in range(EVERY - 1):
        agg(x)
    assert looks(agg) == 6  # 1, 2, 4, 8, 16, 32
    agg(x)
    assert looks(agg) == 7


def test_when_it_does_not():
    x = torch.randn(8, 2)
    agg = GenAgg()
    agg.eval()(x)
    agg.train()
    with torch.no_grad():
        agg(x)
    agg.observe = False
    agg(x)
    assert looks(agg) == 0
    assert standard("max").seen is None


def test_it_changes_neither_results_nor_random_numbers():
    agg, x = GenAgg(), torch.randn(500, 2)
    other = copy.deepcopy(agg)
    other.observe = False
    state = torch.get_rng_state()
    assert torch.equal(agg(x), other(x))
    assert torch.equal(torch.get_rng_state(), state)


def test_what_is_not_finite_is_left_out():
    agg = GenAgg()
    agg(torch.tensor([[1.0], [torch.nan], [torch.inf], [1.0]]))
    assert agg.seen.values.tolist() == [1.0] * len(LEVELS)
    agg(torch.full((4, 1), torch.nan))
    assert agg.seen.values.isfinite().all()


def test_it_follows_data_that_moves():
    seen = Seen()
    for _ in range(100):
        seen.look(torch.zeros(10, 1))
    for _ in range(100):
        seen.look(torch.ones(10, 1))
    assert seen.values.min() > 0.99


def test_saved_and_loaded_and_old_states_without_it():
    agg = GenAgg(channels=2)
    agg(torch.randn(50, 2))
    state = agg.state_dict()
    other = GenAgg(channels=2)
    other.load_state_dict(state)
    assert torch.equal(other.seen.values, agg.seen.values)
    other.load_state_dict({name: value for name, value in state.items() if not name.startswith("seen.")})
    assert torch.equal(other.alpha, agg.alpha)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000, 4096, 64 * 999, 10**6])
def test_the_sample_is_even_and_in_step_with_nothing(n):
    some = _spread(n, torch.device("cpu"))
    assert some.unique().numel() == some.numel() == min(n, 1024)
    if n >= 64_000:
        counts = torch.bincount(some % 64, minlength=64)  # of 64 features
        assert counts.min() > 4
        assert torch.histc(some.float(), 8, 0, n).min() > 100
