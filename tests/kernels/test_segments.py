import pytest
import torch

from fmean.kernels import Segments
from fmean.kernels.segments import segment_gather, segment_sum

INDEX = torch.tensor([2, 0, 2, 4, 0, 2])


@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 2, 3), (6, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_operators(shape, dtype, device):
    x = torch.randn(shape, dtype=dtype, device=device)
    y = torch.randn(5, *shape[1:], dtype=dtype, device=device)
    index = INDEX.to(device)
    torch.library.opcheck(segment_sum, (x, index, 5))
    torch.library.opcheck(segment_gather, (y, index))


def test_sum_and_gather_against_a_loop(device):
    x = torch.randn(6, 3, device=device)
    sets = Segments(INDEX.to(device), 5)
    for i in range(5):
        torch.testing.assert_close(sets.sum(x)[i].float(), x[i == INDEX].sum(0))
    assert torch.equal(sets.gather(x[:5]), x[:5][INDEX])


def test_max_of_an_empty_set(device):
    sets = Segments(INDEX.to(device), 5)
    y = sets.max(torch.full((6, 2), -3.0, device=device))
    assert y[:, 0].tolist() == [-3, -torch.inf, -3, -torch.inf, -3]


def test_first_and_second_derivatives():
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    sets = Segments(INDEX, 5)
    for run, value in [(lambda x: sets.sum(x) ** 3, x), (lambda y: sets.gather(y) ** 3, y)]:
        assert torch.autograd.gradcheck(run, (value,))
        assert torch.autograd.gradgradcheck(run, (value,))


@pytest.mark.parametrize("in_dims", [(0, None), (1, None), (0, 0), (None, 0)])
def test_vmap(in_dims):
    x = torch.randn(6, 3) if in_dims[0] is None else torch.randn(4, 6, 3).movedim(0, in_dims[0])
    index = INDEX if in_dims[1] is None else torch.randint(0, 5, (4, 6))
    y = torch.vmap(lambda x, i: Segments(i, 5).sum(x), in_dims=in_dims)(x, index)
    for b in range(4):
        xb = x if in_dims[0] is None else x.select(in_dims[0], b)
        ib = index if in_dims[1] is None else index[b]
        torch.testing.assert_close(y[b], segment_sum(xb, ib, 5))


def test_a_long_sum_keeps_its_digits():
    x = torch.randn(100_000, 1)
    y = segment_sum(x, torch.zeros(100_000, dtype=torch.long), 1)
    torch.testing.assert_close(y.double(), x.double().sum(0, keepdim=True), rtol=0, atol=1e-5)


def test_from_ptr():
    assert Segments.from_ptr(torch.tensor([0, 2, 2, 5]), 5).index.tolist() == [0, 0, 2, 2, 2]
