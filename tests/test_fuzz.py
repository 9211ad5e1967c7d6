"""The first of the random cases that `make fuzz` goes through."""

import pytest

from .fuzz.check import check


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 150, 10))
def test_random_cases_agree_with_a_float64_loop(first, device):
    failures = [failure for seed in range(first, first + 10) for failure in check(seed, device.type)]
    assert not failures, "\n".join(map(str, failures))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 30, 10))
def test_so_do_the_kernels_for_a_gpu(first, device):
    """In Triton's interpreter; on a GPU the test above is of them."""
    pytest.importorskip("triton")
    if device.type == "cuda":
        pytest.skip("they are tested themselves")
    failures = [failure for seed in range(first, first + 10) for failure in check(seed, "cpu", ["triton"])]
    assert not failures, "\n".join(map(str, failures))
