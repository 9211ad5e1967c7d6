"""The fused path against the plain one, on a GPU where there is one, else in Triton's interpreter."""

import pytest
import torch

from fmean import GenAgg
from fmean.kernels import fused, plain
from fmean.kernels.csr import csr_of_index, csr_of_ptr

pytest.importorskip("triton")
# NumPy, which the interpreter computes with, warns where a branch that is not taken overflows.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# Rows of every kind: empty, single, short and long, first and last ones empty.
ROWS = {
    "mixed": [0, 3, 1, 0, 7, 20, 2, 5, 0],
    "single": [1, 1, 1],
    "long": [130, 1],
    "empty": [0, 0, 4, 0],
}


def problem(sizes, features=5, scale=1.0, beta=0.3, dtype=torch.float32):
    agg = GenAgg(alpha=[0.1, 0.5, 0.9], beta=beta, learn_beta=beta != 0).to(DEVICE)
    with torch.no_grad():
        for parameter in agg.f.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    sizes = torch.tensor(sizes)
    x = (torch.randn(int(sizes.sum()), features) * scale).to(DEVICE, dtype)
    index = torch.arange(len(sizes)).repeat_interleave(sizes).to(DEVICE)
    return agg, x, index, len(sizes)


def run(agg, x, size, index=None, ptr=None, fused_path=True):
    """The result, poisoned beforehand where the kernels write, and all gradients."""
    x = x.clone().requires_grad_()
    if fused_path:
        beta = agg.beta if isinstance(agg.beta, torch.nn.Parameter) else None
        parameters = fused.sinh_parameters(agg.f, agg.alpha)
        y = fused.sinh_f_mean(x, index, ptr, size, beta, agg.f.eps, parameters)
    else:
        with plain():
            y = agg(x, index, ptr, size)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    return [y.detach(), *torch.autograd.grad(y, [x, *agg.parameters()], g)]


def agree(ours, reference, rtol=1e-3, atol=1e-4):
    torch.testing.assert_close(ours[0], reference[0], rtol=max(1e-4, rtol / 10), atol=1e-5 + rtol / 100)
    for a, b in zip(ours[1:], reference[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=atol * max(1.0, b.abs().max().item()))


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """Memory that is not written to stays NaN."""
    original = torch.Tensor.new_empty

    def poisoned(self, *size, **options):
        out = original(self, *size, **options)
        return out.fill_(torch.nan) if out.is_floating_point() else out

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)


@pytest.mark.parametrize("beta", [0.3, 0.0])
@pytest.mark.parametrize("rows", ROWS)
def test_agrees_with_the_plain_path(rows, beta):
    agg, x, index, size = problem(ROWS[rows], beta=beta)
    agree(run(agg, x, size, index), run(agg, x, size, index, fused_path=False))


@pytest.mark.parametrize("features", [1, 4, 64, 70])
def test_any_number_of_features(features):
    agg, x, index, size = problem([3, 0, 5], features)
    agree(run(agg, x, size, index), run(agg, x, size, index, fused_path=False))


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3])
def test_terms_that_overflow_are_scaled(scale):
    agg, x, index, size = problem(ROWS["mixed"], scale=scale)
    ours, reference = run(agg, x, size, index), run(agg, x, size, index, fused_path=False)
    torch.testing.assert_close(ours[0], reference[0], rtol=1e-4, atol=1e-6 + 1e-5 * scale)
    assert all(gradient.isfinite().all() for gradient in ours[1:])


def test_zeros_and_equal_elements():
    agg, _, index, size = problem([2, 3, 1])
    x = torch.tensor([0, 0, 1, 1, 1, 0.0]).view(-1, 1).to(DEVICE)
    agree(run(agg, x, size, index), run(agg, x, size, index, fused_path=False))


def test_an_unsorted_index_and_ptr():
    agg, x, index, size = problem(ROWS["mixed"])
    y, dx, *rest = run(agg, x, size, index)
    ptr = torch.tensor([0, *torch.tensor(ROWS["mixed"]).cumsum(0)]).to(DEVICE)
    for a, b in zip(run(agg, x, size, ptr=ptr), [y, dx, *rest], strict=True):
        assert torch.equal(a, b)
    order = torch.randperm(len(x))
    y2, dx2, *rest2 = run(agg, x[order], size, index[order])
    torch.testing.assert_close(y2, y)
    torch.testing.assert_close(dx2, dx[order])
    for a, b in zip(rest2, rest, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    if DEVICE == "cpu" and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter has no bfloat16")
    agg, x, index, size = problem(ROWS["mixed"], dtype=dtype)
    ours, reference = run(agg, x, size, index), run(agg, x, size, index, fused_path=False)
    assert ours[0].dtype == ours[1].dtype == dtype
    agree(ours, reference, rtol=2e-2, atol=1e-2)


def test_a_nan_stays_in_its_row():
    agg, x, index, size = problem(ROWS["mixed"])
    clean = run(agg, x, size, index)[0]
    x[4, 1] = torch.nan
    y = run(agg, x, size, index)[0]
    assert y[index[4], 1].isnan()
    y[index[4], 1] = clean[index[4], 1]
    torch.testing.assert_close(y, clean)


def test_the_same_answer_twice():
    agg, x, index, size = problem(ROWS["mixed"])
    for a, b in zip(run(agg, x, size, index), run(agg, x, size, index), strict=True):
        assert torch.equal(a, b)


def test_as_an_operator():
    agg, x, index, size = problem([3, 0, 2], features=4)
    parameters = [p.detach().requires_grad_() for p in fused.sinh_parameters(agg.f, agg.alpha)]
    arguments = (x.requires_grad_(), index, None, size, agg.beta.detach().requires_grad_(), agg.f.eps, parameters)
    torch.library.opcheck(
        fused.sinh_operator, arguments, test_utils=["test_schema", "test_autograd_registration", "test_faketensor"]
    )


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="no CUDA device")
def test_genagg_takes_it_on_a_gpu(monkeypatch):
    calls = []
    original = fused._forward
    monkeypatch.setattr(fused, "_forward", lambda *a: calls.append(1) or original(*a))
    agg, x, index, size = problem(ROWS["mixed"], features=64)
    agg(x, index, dim_size=size)
    assert calls
    run_compiled = torch.compile(agg, fullgraph=True)
    torch.testing.assert_close(run_compiled(x, index, dim_size=size), agg(x, index, dim_size=size))


class TestCSR:
    def test_rows(self):
        rows = csr_of_index(torch.tensor([2, 0, 2, 0]), 4)
        assert rows.ptr.tolist() == [0, 2, 2, 4, 4]
        assert rows.order.tolist() == [1, 3, 0, 2]
        assert csr_of_index(torch.tensor([0, 0, 2]), 3).order is None
        assert csr_of_index(torch.tensor([], dtype=torch.long), 2).ptr.tolist() == [0, 0, 0]

    def test_is_found_once_for_all_layers(self):
        edge_index = torch.tensor([[0, 1, 2], [2, 0, 1]])
        assert csr_of_index(edge_index[1], 3) is csr_of_index(edge_index[1], 3)
        assert csr_of_index(edge_index[1], 3) is not csr_of_index(edge_index[0], 3)

    def test_a_changed_index_is_looked_at_again(self):
        index = torch.tensor([0, 1, 1])
        assert csr_of_index(index, 2).ptr.tolist() == [0, 1, 3]
        index[1] = 0
        assert csr_of_index(index, 2).ptr.tolist() == [0, 2, 3]

    def test_errors(self):
        with pytest.raises(ValueError, match=r"index must lie in 0 … 1 \(dim_size=2\), got values from 0 to 5"):
            csr_of_index(torch.tensor([0, 5]), 2)
        with pytest.raises(
            ValueError, match="ptr must rise from 0 to the number of elements, 4, got values from 0 to 3"
        ):
            csr_of_ptr(torch.tensor([0, 3]), 4)
        with pytest.raises(ValueError, match="that fall in between"):
            csr_of_ptr(torch.tensor([0, 3, 2, 4]), 4)
