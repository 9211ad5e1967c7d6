"""The fused paths against the plain one: compiled for the CPU, and Triton's on a GPU or else in its interpreter."""

import copy
import gc
import math
from contextlib import nullcontext

import pytest
import torch

from fmean import STANDARD, GenAgg, augmented_f_mean, standard
from fmean.functions import InvertibleNN, Mixture, MLPAutoencoder, Power, SinhLinear
from fmean.kernels import c_compile, c_kernels, csr, fused, fused_squares, operators, plain
from fmean.kernels import call as calls
from fmean.kernels.csr import csr_of_edges, csr_of_index, csr_of_ptr
from fmean.kernels.describe import describe

# NumPy, which Triton's interpreter computes with, warns where a branch that is not taken overflows.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

GPU = torch.cuda.is_available()

# Rows of every kind: empty, single, short and long, first and last ones empty.
ROWS = {
    "mixed": [0, 3, 1, 0, 7, 20, 2, 5, 0],
    "single": [1, 1, 1],
    "long": [130, 1],
    "empty": [0, 0, 4, 0],
}
LEARNABLE = {
    "sinh": lambda: GenAgg(alpha=[0.1, 0.5, 0.9], beta=0.3),
    "sinh, no β": lambda: GenAgg(alpha=[0.1, 0.5, 0.9], learn_beta=False),
    "sinh, one channel": lambda: GenAgg(SinhLinear(start=0.4), alpha=0.3, beta=0.2),
    "mlp": lambda: GenAgg("mlp", alpha=0.3, beta=0.3).eval(),
    "mlp, training": lambda: GenAgg("mlp", alpha=0.3, beta=0.3),
    "mlp, small": lambda: GenAgg(MLPAutoencoder((1, 3)), alpha=[0.1, 0.2, 0.3]).eval(),
    "mlp, other sizes": lambda: GenAgg(MLPAutoencoder((1, 3, 2)), alpha=0.3, beta=0.2),
    "mlp, BatchNorm": lambda: GenAgg(MLPAutoencoder((1, 4, 3), batch_norm=True), beta=0.1).eval(),
    "invertible": lambda: GenAgg("invertible", alpha=0.4, beta=0.2),
    "invertible, magnitude": lambda: GenAgg(InvertibleNN(2, magnitude=True), alpha=0.4, beta=0.2),
    "invertible, both": lambda: GenAgg(Mixture([InvertibleNN(2), InvertibleNN(1, magnitude=True)]), beta=0.2),
}
SYMBOLIC = {
    **{name: lambda name=name: standard(name) for name in STANDARD},
    "sum, learned": lambda: GenAgg("sum", alpha=0.7, beta=0.2),
    "product, learned": lambda: GenAgg("product", alpha=0.3, beta=0.2),
    "harmonic_mean, learned": lambda: GenAgg("harmonic_mean", alpha=0.3, beta=0.2),
    "log_sum_exp, learned": lambda: GenAgg("log_sum_exp", alpha=0.7, beta=0.2),
    "cube": lambda: GenAgg(Power(3), alpha=0.7),
    "root": lambda: GenAgg(Power(0.5), alpha=0.7),
    "inverse square": lambda: GenAgg(Power(-2), learn_beta=False),
    "max_magnitude, centred": lambda: GenAgg("max_magnitude", beta=0.3),
}
ALL = LEARNABLE | SYMBOLIC


@pytest.fixture(params=["cpu", "triton"])
def path(request, monkeypatch):
    """The path under test. Without a GPU, Triton's kernels are given what the CPU's would get."""
    monkeypatch.setattr(csr, "LONG", 6)  # so that small cases have rows of both kinds
    if request.param == "cpu":
        if c_compile.compiler() is None:
            pytest.skip("no C++ compiler")
    else:
        pytest.importorskip("triton")
        from fmean.kernels import triton_kernels

        monkeypatch.setattr(triton_kernels, "LONG_ROWS", triton_kernels.Tile(1, 4, 4, 1))
        if not GPU:
            for module in (calls, operators):
                monkeypatch.setattr(module, "backend", lambda x: triton_kernels)
    return request.param


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    """Memory that is not written to stays NaN."""
    for owner, name in ((torch.Tensor, "new_empty"), (torch, "empty_like")):
        original = getattr(owner, name)

        def poisoned(*args, original=original, **options):
            out = original(*args, **options)
            return out.fill_(torch.nan) if out.is_floating_point() else out

        monkeypatch.setattr(owner, name, poisoned)


def device(path):
    return "cuda" if path == "triton" and GPU else "cpu"


def aggregation(make, path):
    torch.manual_seed(3)
    agg = make()
    with torch.no_grad():
        for parameter in agg.f.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for norm in (m for m in agg.modules() if isinstance(m, torch.nn.BatchNorm1d)):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return agg.to(device(path))


def elements(sizes, path, features=5, scale=1.0, dtype=torch.float32, shuffled=False):
    sizes = torch.tensor(sizes)
    index = torch.arange(len(sizes)).repeat_interleave(sizes)
    index = index[torch.randperm(len(index))] if shuffled else index
    x = (torch.randn(len(index), features) * scale).to(dtype)
    return x.to(device(path)), index.to(device(path)), len(sizes)


def results(run, agg, leaves):
    """The result and all gradients."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    y = run(agg, *leaves)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    wanted = [*leaves, *agg.parameters()]
    gradients = torch.autograd.grad(y, wanted, g, allow_unused=True)
    return [y.detach(), *(torch.zeros_like(p) if d is None else d for p, d in zip(wanted, gradients, strict=True))]


def fused_call(agg, x, size, index=None, ptr=None, source=None, factor=None):
    """As `fused_f_mean`, but on the path under test, which may be Triton's interpreter."""
    found, beta = describe(agg.f, agg.alpha), agg._used_beta()
    centred = isinstance(beta, torch.Tensor)
    parameters = [*found.parameters, fused._as_parameter(agg.alpha, found.alphas, 1, x), *([beta] if centred else [])]
    strength = float(getattr(agg.f, "inversion", 0.0)) if agg.training else 0.0
    call = calls.Call(source, index, ptr, size, found.recipe, centred, strength)
    return calls.FMean.apply(x.contiguous(), factor, call, call.rows(x), agg.f, *parameters)


def plain_call(agg, x, size, index=None, ptr=None, source=None, factor=None):
    with plain():
        message = x if source is None else x[source]
        return agg(message if factor is None else message * factor.unsqueeze(-1), index, ptr, size)


def agree(ours, reference, rtol=1e-3):
    torch.testing.assert_close(ours[0], reference[0], rtol=rtol / 10, atol=rtol / 100)
    for a, b in zip(ours[1:], reference[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol / 10 * max(1.0, b.abs().max().item()))


def compare(agg, leaves, **options):
    ours = results(lambda agg, *leaves: fused_call(agg, *leaves[:1], **options), agg, leaves)
    agree(ours, results(lambda agg, *leaves: plain_call(agg, *leaves[:1], **options), agg, leaves))
    return ours


@pytest.mark.parametrize("name", ALL)
def test_agrees_with_the_plain_path(path, name):
    x, index, size = elements(ROWS["mixed"], path)
    compare(aggregation(ALL[name], path), [x], size=size, index=index)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shuffled", [False, True])
def test_neighbours_with_weights(path, name, shuffled):
    """Messages w·x[source]: gradients of x, of w and of all parameters."""
    if path == "triton" and name == "max_magnitude, centred":
        pytest.skip("takes the plain path")
    agg = aggregation(ALL[name], path)
    _, index, size = elements(ROWS["mixed"], path, shuffled=shuffled)
    x = torch.randn(9, 6).to(device(path))
    source = torch.randint(0, 8, (len(index),)).to(device(path))  # node 8 sends nothing
    w = torch.randn(len(index)).to(device(path))
    both = {"size": size, "index": index, "source": source}
    compare(agg, [x], **both)
    ours = results(lambda agg, x, w: fused_call(agg, x, factor=w, **both), agg, [x, w])
    agree(ours, results(lambda agg, x, w: plain_call(agg, x, factor=w, **both), agg, [x, w]))


@pytest.mark.parametrize("features", [1, 4, 16, 64, 70])
@pytest.mark.parametrize("name", ["sinh", "mlp, training", "log_sum_exp, learned", "max_magnitude, centred"])
def test_any_number_of_features(path, features, name):
    x, index, size = elements([3, 0, 5, 9], path, features)
    compare(aggregation(ALL[name], path), [x], size=size, index=index)


@pytest.mark.parametrize("name", ["sinh", *STANDARD])
@pytest.mark.parametrize("rows", ROWS)
def test_every_kind_of_rows(path, rows, name):
    x, index, size = elements(ROWS[rows], path)
    compare(aggregation(ALL[name], path), [x], size=size, index=index)


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3])
def test_terms_that_overflow_are_scaled(path, scale):
    x, index, size = elements(ROWS["mixed"], path, scale=scale)
    agg = aggregation(LEARNABLE["sinh"], path)
    ours = results(lambda agg, x: fused_call(agg, x, size, index), agg, [x])
    with plain():
        reference = agg(x, index, dim_size=size)
    torch.testing.assert_close(ours[0], reference.detach(), rtol=1e-4, atol=1e-6 + 1e-5 * scale)
    assert all(gradient.isfinite().all() for gradient in ours[1:])


@pytest.mark.parametrize("name", ["sinh", *SYMBOLIC])
def test_zeros_and_equal_elements(path, name):
    _, index, size = elements([2, 3, 1], path)
    x = torch.tensor([0, 0, 1, 1, 1, 0.0]).view(-1, 1).to(device(path))
    compare(aggregation(ALL[name], path), [x], size=size, index=index)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3, 1e30])
@pytest.mark.parametrize("name", STANDARD)
def test_a_layer_of_small_and_large_numbers(path, name, scale):
    """What rows hand to their nodes may be far beyond float32."""
    if name == "product" and scale > 1:
        pytest.skip("the result is beyond float32 as well")
    agg = aggregation(ALL[name], path)
    _, index, size = elements(ROWS["mixed"], path)
    x = torch.randn(9, 6).to(device(path)) * scale
    source = torch.randint(0, 9, (len(index),)).to(device(path))
    compare(agg, [x], size=size, index=index, source=source)


def test_an_unsorted_index_and_ptr(path):
    agg = aggregation(LEARNABLE["sinh"], path)
    x, index, size = elements(ROWS["mixed"], path)
    ours = results(lambda agg, x: fused_call(agg, x, size, index), agg, [x])
    ptr = torch.tensor([0, *torch.tensor(ROWS["mixed"]).cumsum(0)]).to(device(path))
    for a, b in zip(results(lambda agg, x: fused_call(agg, x, size, ptr=ptr), agg, [x]), ours, strict=True):
        assert torch.equal(a, b)
    order = torch.randperm(len(x)).to(x.device)
    again = results(lambda agg, x: fused_call(agg, x, size, index[order]), agg, [x[order]])
    torch.testing.assert_close(again[0], ours[0])
    torch.testing.assert_close(again[1], ours[1][order])
    agree(again[2:], ours[2:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(path, dtype):
    if path == "triton" and not GPU:
        pytest.skip("a GPU's matter; the interpreter has no bfloat16")
    agg = aggregation(LEARNABLE["sinh"], path)
    x, index, size = elements(ROWS["mixed"], path, dtype=dtype)
    ours = results(lambda agg, x: agg(x, index, dim_size=size), agg, [x])
    assert ours[0].dtype == ours[1].dtype == dtype
    agree(ours, results(lambda agg, x: plain_call(agg, x, size, index), agg, [x]), rtol=2e-2)


@pytest.mark.parametrize("name", ALL)
def test_a_nan_stays_in_its_row_and_feature(path, name):
    agg = aggregation(ALL[name], path)
    x, index, size = elements(ROWS["mixed"], path)
    with torch.no_grad():
        clean = fused_call(agg, x, size, index)
        x[4, 1] = torch.nan
        y = fused_call(agg, x, size, index)
    assert y[index[4], 1].isnan()
    y[index[4], 1] = clean[index[4], 1]
    torch.testing.assert_close(y, clean)


@pytest.mark.parametrize("name", ["sinh", "mlp, training", "product", "max", "standard_deviation"])
def test_the_same_answer_twice(path, name):
    agg = aggregation(ALL[name], path)
    x, index, size = elements(ROWS["mixed"], path)
    runs = [results(lambda agg, x: fused_call(agg, x, size, index), agg, [x]) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_the_inversion_objective_is_the_plain_paths(path):
    """Its value too, on sets of unequal size whose elements are not in order."""
    agg = aggregation(LEARNABLE["mlp, training"], path)
    x, index, size = elements([9, 3, 20, 0, 8], path, features=300, shuffled=True)  # every third is looked at
    results(lambda agg, x: fused_call(agg, x, size, index), agg, [x])
    value = agg.f.last_inversion_loss.clone()
    results(lambda agg, x: plain_call(agg, x, size, index), agg, [x])
    torch.testing.assert_close(value, agg.f.last_inversion_loss)


@pytest.mark.parametrize("name", ["sinh", "mlp, training"])
def test_as_an_operator(path, name):
    agg = aggregation(LEARNABLE[name], path)
    x, index, size = elements([3, 0, 2], path, features=4)
    found = describe(agg.f, agg.alpha)
    theta = [p.detach().requires_grad_() for p in [*found.parameters, agg.alpha, agg.beta]]
    arguments = (x.requires_grad_(), None, theta, None, index, None, size, found.recipe, True, 0.1, 1)
    checks = ["test_schema", "test_autograd_registration", "test_faketensor"]
    torch.library.opcheck(operators.f_mean_operator, arguments, test_utils=checks)


class TestOnACPU:
    """What a CPU's path promises beside the same answers."""

    def setup_method(self):
        if c_compile.compiler() is None:
            pytest.skip("no C++ compiler")

    @pytest.mark.parametrize("f", ["sinh", "mlp", "invertible", *STANDARD])
    def test_genagg_takes_it(self, f, monkeypatch):
        calls = []
        original = c_kernels.forward
        monkeypatch.setattr(c_kernels, "forward", lambda *a: calls.append(1) or original(*a))
        x, index, size = elements(ROWS["mixed"], "cpu")
        agg = GenAgg(f, learn_beta=f not in ("min", "max"))  # which with a β take the plain path
        agg(x, index, dim_size=size)
        assert len(calls) == 1
        agg.neighbours(x, torch.arange(len(index)), index, size)
        assert len(calls) == 2
        with plain():
            agg(x, index, dim_size=size)
        assert len(calls) == 2

    @pytest.mark.parametrize("scale", [1.0, 30.0])
    @pytest.mark.parametrize("f", ["sinh", "mlp", "invertible", "product", "harmonic_mean", "log_sum_exp"])
    def test_without_beta_f_is_computed_once_for_each_node(self, f, scale, monkeypatch):
        tables = []
        original = c_kernels._table
        monkeypatch.setattr(c_kernels, "_table", lambda *a: tables.append(original(*a)) or tables[-1])
        agg = GenAgg(f, alpha=0.3, learn_beta=False)
        _, index, size = elements([3, 0, 40, 1, 300], "cpu", shuffled=True)
        source, x = torch.randint(0, 9, (len(index),)), torch.randn(10, 20) * scale
        ours = results(lambda agg, x: agg.neighbours(x, source, index, size), agg, [x])
        assert all(table.shape[0] == 10 for table in tables)
        assert len(tables) == 2
        agree(ours, results(lambda agg, x: plain_call(agg, x, size, index, source=source), agg, [x]))

    @pytest.mark.parametrize("f", ["sinh", "mlp"])
    def test_nothing_of_the_size_of_the_terms_is_kept(self, f):
        """All that autograd holds between forward and backward, x itself apart, is smaller than x."""
        x, index, size = elements([50] * 20, "cpu", features=32)
        x.requires_grad_()
        held = {}

        def pack(tensor):
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = GenAgg(f)(x, index, dim_size=size)
        held.pop(x.untyped_storage().data_ptr(), None)
        assert sum(held.values()) < x.nbytes / 10
        y.sum().backward()

    def test_both_cores_give_what_one_gives(self):
        x, index, size = elements([100] * 100, "cpu", features=16)
        agg = GenAgg()
        threads = torch.get_num_threads()
        try:
            found = []
            for count in (1, 2):
                torch.set_num_threads(count)
                found.append(results(lambda agg, x: agg(x, index, dim_size=size), agg, [x]))
        finally:
            torch.set_num_threads(threads)
        assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))

    def test_without_a_compiler_it_takes_the_plain_path(self, monkeypatch):
        monkeypatch.setattr(c_kernels, "_library", lambda *a: None)
        x, index, size = elements(ROWS["mixed"], "cpu")
        agg = GenAgg()
        with plain():
            reference = agg(x, index, dim_size=size)
        assert torch.equal(agg(x, index, dim_size=size), reference)

    def test_an_invertible_f_that_leaves_float32_takes_the_plain_path(self):
        agg = GenAgg(InvertibleNN(2), learn_beta=False)
        with torch.no_grad():
            agg.f.weights.copy_(torch.tensor([[0.0, 0, 0.5, 0]] * 2))
        x = torch.tensor([[1e20], [2e20]])
        torch.testing.assert_close(agg(x, torch.tensor([0, 1]), dim_size=2), x, rtol=1e-4, atol=0)

    @pytest.mark.parametrize("f", ["sinh", "mlp"])
    def test_compile(self, f):
        torch._dynamo.reset()
        agg = GenAgg(f)
        x, index, size = elements(ROWS["mixed"], "cpu")
        plainly = results(lambda agg, x: agg(x, index, dim_size=size), agg, [x])
        compiled = torch.compile(agg, fullgraph=True, backend="aot_eager")
        agree(results(lambda agg, x: compiled(x, index, dim_size=size), agg, [x]), plainly)

    def test_export(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.agg = GenAgg()

            def forward(self, x, index):
                return self.agg(x, index, dim_size=9)

        model = Model()
        x, index, _ = elements(ROWS["mixed"], "cpu")
        exported = torch.export.export(model, (x, index))
        assert "fmean.f_mean" in str(exported.graph)
        torch.testing.assert_close(exported.module()(x, index), model(x, index))

    def test_a_copy_of_the_model_shares_nothing(self):
        agg = GenAgg("mlp")
        x, index, size = elements(ROWS["mixed"], "cpu")
        agg(x, index, dim_size=size).sum().backward()
        other = copy.deepcopy(agg)
        assert torch.equal(other(x, index, dim_size=size), agg(x, index, dim_size=size))


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="no CUDA device")
@pytest.mark.parametrize("f", ["sinh", "mlp", "standard_deviation"])
def test_genagg_takes_it_on_a_gpu(f, monkeypatch):
    from fmean.kernels import triton_kernels

    calls = []
    original = triton_kernels.forward
    monkeypatch.setattr(triton_kernels, "forward", lambda *a: calls.append(1) or original(*a))
    agg = GenAgg(f).cuda()
    x, index, size = elements([3, 700, 0, 5], "triton", features=64)
    y = agg(x, index, dim_size=size)
    assert calls
    with plain():
        torch.testing.assert_close(y, agg(x, index, dim_size=size), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.compile(agg, fullgraph=True)(x, index, dim_size=size), y)


class TestCSR:
    def test_rows(self):
        rows = csr_of_index(torch.tensor([2, 0, 2, 0]), 4)
        assert rows.ptr.tolist() == [0, 2, 2, 4, 4]
        assert rows.col.tolist() == rows.edge.tolist() == [1, 3, 0, 2]
        assert csr_of_index(torch.tensor([0, 0, 2]), 3).col is None
        assert csr_of_index(torch.tensor([], dtype=torch.long), 2).ptr.tolist() == [0, 0, 0]

    def test_is_found_once_for_all_layers(self):
        edge_index = torch.tensor([[0, 1, 2], [2, 0, 1]])
        assert csr_of_index(edge_index[1], 3) is csr_of_index(edge_index[1], 3)
        assert csr_of_index(edge_index[1], 3) is not csr_of_index(edge_index[0], 3)
        assert csr_of_edges(*edge_index, 3, 3) is csr_of_edges(*edge_index, 3, 3)
        assert csr_of_edges(*edge_index, 3, 3) is not csr_of_edges(*edge_index.flip(0), 3, 3)

    def test_an_int32_index_is_found_again(self):
        index = torch.tensor([1, 0, 1], dtype=torch.int32)
        assert csr.as_int64(index) is csr.as_int64(index)

    def test_is_forgotten_with_its_index(self):
        before = len(csr._found)
        index = torch.tensor([0, 1, 1])
        csr_of_index(index, 2)
        csr_of_edges(torch.tensor([0, 1, 1]), index, 2, 2)
        del index
        assert len(csr._found) <= before

    def test_a_changed_index_is_looked_at_again(self):
        index = torch.tensor([0, 1, 1])
        assert csr_of_index(index, 2).ptr.tolist() == [0, 1, 3]
        index[1] = 0
        assert csr_of_index(index, 2).ptr.tolist() == [0, 2, 3]

    def test_long_rows_are_listed_apart(self, monkeypatch):
        monkeypatch.setattr(csr, "LONG", 2)
        short, long = csr_of_index(torch.tensor([0, 1, 1, 1, 2, 2]), 4).lists
        assert short.rows.tolist() == [2, 0, 3]  # the longest first
        assert [t.tolist() for t in long] == [[1], [1], [4]]

    def test_errors(self):
        with pytest.raises(ValueError, match=r"index must lie in 0 … 1 \(dim_size=2\), got values from 0 to 5"):
            csr_of_index(torch.tensor([0, 5]), 2)
        with pytest.raises(ValueError, match="source must lie in 0 … 1, got values from -1 to 1"):
            csr_of_edges(torch.tensor([-1, 1]), torch.tensor([0, 1]), 2, 2)
        with pytest.raises(
            ValueError, match="ptr must rise from 0 to the number of elements, 4, got values from 0 to 3"
        ):
            csr_of_ptr(torch.tensor([0, 3]), 4)
        with pytest.raises(ValueError, match="that fall in between"):
            csr_of_ptr(torch.tensor([0, 3, 2, 4]), 4)


HELD = {
    "sinh": lambda channels: GenAgg("sinh", beta=0.3, channels=channels),
    "sinh, one channel": lambda channels: GenAgg(SinhLinear(channels), alpha=0.3, beta=0.3, channels=channels),
    "sinh, no β": lambda channels: GenAgg("sinh", learn_beta=False, channels=channels),
    "mlp": lambda channels: GenAgg("mlp", alpha=0.3, beta=0.3, channels=channels).eval(),
    "mlp, training": lambda channels: GenAgg("mlp", beta=0.3, channels=channels),
    "mlp, an α for each": lambda channels: GenAgg("mlp", alpha=[0.1, 0.2, 0.3, 0.4], channels=channels).eval(),
    "invertible": lambda channels: GenAgg("invertible", alpha=0.4, beta=0.2, channels=channels),
    **{
        name: lambda channels, name=name: GenAgg(name, 0.4, 0.2, channels=channels)
        for name in ("sum", "product", "harmonic_mean", "standard_deviation", "log_sum_exp", "min_magnitude")
    },
    "max": lambda channels: GenAgg("max", learn_beta=False, channels=channels),
    "invertible, both": lambda channels: GenAgg(
        Mixture([InvertibleNN(2, channels=channels), InvertibleNN(1, True, channels)], channels), channels=channels
    ),
}


@pytest.mark.parametrize("shape", [(21,), (3, 5)])
@pytest.mark.parametrize("name", HELD)
class TestFeaturesWithParametersOfTheirOwn:
    @pytest.fixture
    def agg(self, path, name, shape, request, monkeypatch):
        """An aggregation whose backward must come from the kernels under test."""
        if path == "triton" and request.node.callspec.params.get("threads") == 2:
            pytest.skip("a CPU's matter")
        monkeypatch.setattr(c_kernels, "SMALL", 0)
        agg = aggregation(lambda: HELD[name](shape[-1]), path)
        backend, calls_ = calls.backend(next(agg.parameters(), torch.zeros(1, device=device(path)))), []
        original = backend.backward
        monkeypatch.setattr(backend, "backward", lambda *a: calls_.append(1) or original(*a))
        yield agg
        assert calls_

    def test_agrees_with_the_plain_path(self, agg, path, shape):
        _, index, size = elements(ROWS["mixed"], path, shuffled=True)
        x = torch.randn(len(index), *shape).to(device(path))
        run = lambda agg, x: agg(x, index, dim_size=size, dim=0)  # noqa: E731
        ours = results(run, agg, [x])
        with plain():
            agree(ours, results(run, agg, [x]))

    @pytest.mark.parametrize("threads", [1, 2])
    def test_neighbours(self, agg, path, shape, threads, monkeypatch):
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        _, index, size = elements(ROWS["mixed"], path)
        x, source = torch.randn(9, *shape), torch.randint(0, 8, (len(index),)).to(device(path))
        w = torch.randn(len(index)).to(device(path)) if len(shape) == 1 else None
        run = lambda agg, x, *w: agg.neighbours(x, source, index, size, *w)  # noqa: E731
        leaves = [x.to(device(path)), *([] if w is None else [w])]
        ours = results(run, agg, leaves)
        with plain():
            agree(ours, results(run, agg, leaves))


def test_x_without_a_gradient_has_none_computed(monkeypatch):
    seen, original = [], c_kernels.backward
    monkeypatch.setattr(c_kernels, "backward", lambda *a: seen.append(original(*a)) or seen[-1])
    x, index, size = elements(ROWS["mixed"], "cpu")
    agg = aggregation(LEARNABLE["sinh"], "cpu")
    source = torch.randint(0, len(x), (len(index),))
    for make in (lambda x: agg(x, index, dim_size=size), lambda x: agg.neighbours(x, source, index, size)):
        wanted = [
            torch.autograd.grad(make(leaf).sum(), list(agg.parameters())) for leaf in (x, x.clone().requires_grad_())
        ]
        assert seen[-2][0] is None
        assert seen[-1][0] is not None
        for a, b in zip(*wanted, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["sinh, no β", "sum, learned", "sum", "product", "max", "standard_deviation"])
def test_what_is_frozen_has_no_gradient_computed(name):
    """Backward is then another kernel, which looks at less."""
    agg = aggregation(ALL[name], "cpu")
    frozen = copy.deepcopy(agg).requires_grad_(False)
    learned = copy.deepcopy(agg)
    learned.alpha = torch.nn.Parameter(learned.alpha.detach())
    _, index, size = elements(ROWS["mixed"], "cpu")
    x, source = torch.randn(len(index), 5), torch.randint(0, len(index), (len(index),))
    for run in (
        lambda agg, x: agg(x, index, dim_size=size),
        lambda agg, x: agg.neighbours(x, source, index, size),
    ):
        found = [
            torch.autograd.grad(run(one, leaf).square().sum(), leaf)[0]
            for one in (frozen, learned)
            for leaf in [x.clone().requires_grad_()]
        ]
        torch.testing.assert_close(*found)


def test_what_was_found_for_an_index_goes_with_it():
    """Every batch has another index: nothing of it may stay."""
    agg = aggregation(LEARNABLE["sinh"], "cpu")
    gc.collect()
    before = len(csr._found)
    for _ in range(3):
        edges = torch.tensor([[0, 1, 2, 1], [0, 0, 1, 2]])
        ptr = torch.tensor([0, 1, 4])
        x = torch.randn(4, 3, requires_grad=True)
        agg.neighbours(x, edges[0], edges[1], 3).sum().backward()
        agg.neighbours(x, edges[1].clone(), edges[0].clone(), 3).sum().backward()
        agg(x, ptr=ptr).sum().backward()
    del edges, ptr
    gc.collect()
    assert len(csr._found) == before


def test_backward_as_an_operator_with_parameters_per_feature():
    agg = aggregation(lambda: HELD["sinh"](3), "cpu")
    x, index, size = elements([3, 0, 2], "cpu", features=3)
    found = describe(agg.f, agg.alpha)
    theta = [p.detach() for p in [*found.parameters, agg.alpha, agg.beta]]
    arguments = (torch.randn(size, 3), x, None, theta, None, index, None, size, found.recipe, True, 0.0, 3, False)
    torch.library.opcheck(operators.f_mean_backward_operator, arguments, test_utils=["test_schema", "test_faketensor"])


@pytest.mark.parametrize("shape", [[4], [4, 3]])
def test_alpha_of_a_shape_that_kernels_do_not_know(shape):
    """[k] for all features is not [features], though both may be 4; [features, 3] is neither."""
    f, x, index = MLPAutoencoder(channels=4).eval(), torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 1, 2])
    outcomes = []
    for path in (nullcontext, plain):
        with path():
            try:
                outcomes.append(
                    augmented_f_mean(x, f, torch.linspace(0, 1, 12)[: math.prod(shape)].view(shape), 0.0, index)
                )
            except ValueError as error:
                outcomes.append(str(error))
    if isinstance(outcomes[1], str):
        assert outcomes[0] == outcomes[1]
    else:
        torch.testing.assert_close(*outcomes)


def test_squares_count_empty_sets():
    agg = aggregation(lambda: HELD["sinh"](3), "cpu")
    source, index = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 2])
    x, target = torch.randn(4, 3), torch.randn(4, 3)
    expected = (agg.neighbours(x, source, index, 4) - target).square().sum(0)
    found = fused_squares(x, agg.f, agg.alpha, agg.beta, source, index, 4, target)
    torch.testing.assert_close(found, expected)
    assert fused_squares(x, agg.f, agg.alpha, agg.beta, source, index, 4, target[:, :1]) is None


def test_a_weight_for_each_edge_is_wanted():
    agg, x = aggregation(LEARNABLE["sinh"], "cpu"), torch.randn(3, 2)
    source, index = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 2])
    with pytest.raises(ValueError, match=r"edge_weight must have shape \[3\], got \[2\]"):
        agg.neighbours(x, source, index, 3, torch.ones(2))
    strided = torch.randn(3, 2)
    torch.testing.assert_close(
        agg.neighbours(x, source, index, 3, strided[:, 0]), agg.neighbours(x, source, index, 3, strided[:, 0].clone())
    )
