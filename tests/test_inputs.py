"""Bad input: each kind gets an error that says what was given and what is allowed."""

import pytest
import torch

from fmean import GenAgg, augmented_f_mean
from fmean.functions import Exp, Identity, Sinh

X = torch.randn(4, 3)
INDEX = torch.tensor([0, 0, 1, 1])


class Wrong(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)

    def inverse(self, s):
        return s


class KeepsTheChannel(torch.nn.Module):
    def forward(self, x):
        return torch.stack([x, x], -1)

    def inverse(self, s):
        return s


CASES = [
    ({"x": X.to_sparse()}, TypeError, "x must be a dense tensor, got layout torch.sparse_coo"),
    ({"index": INDEX, "dim_size": 3.0}, TypeError, "dim_size must be an integer, got 3.0"),
    ({"index": INDEX, "ptr": torch.tensor([0, 1, 4])}, ValueError, "index and ptr describe different sets"),
    ({"weight": torch.ones(4, dtype=torch.cfloat)}, TypeError, "weight must be real, got torch.complex64"),
    ({"weight": torch.tensor([1.0, 1, torch.nan, 1])}, ValueError, "weight must be 0 or more, got nan"),
    ({"alpha": torch.tensor(1j)}, TypeError, "alpha must be real, got torch.complex64"),
    ({"f": Exp(torch.inf), "alpha": torch.zeros(2)}, ValueError, "alpha must be one number or have shape"),
    ({"f": KeepsTheChannel()}, ValueError, r"f.inverse must turn \[1, 3, 2\] into \[1, 3\], but gave \[1, 3, 2\]"),
    ({"x": [1.0, 2.0]}, TypeError, "x must be a torch.Tensor, got list"),
    (
        {"x": torch.ones(4, 3, dtype=torch.long)},
        TypeError,
        r"x must have a floating-point type, got torch.int64; call x.float\(\) first",
    ),
    ({"dim": 2}, ValueError, r"dim=2 is not a dimension of x with shape \[4, 3\]"),
    ({"x": torch.randn(4)}, ValueError, r"dim=-2 is not a dimension of x with shape \[4\]"),
    ({"index": [0, 0, 1, 1]}, TypeError, "index must be a torch.Tensor, got list"),
    ({"index": INDEX.float()}, TypeError, "index must have an integer type, got torch.float32"),
    ({"index": INDEX.bool()}, TypeError, "index must have an integer type, got torch.bool"),
    ({"index": INDEX.view(2, 2)}, ValueError, r"index must have one dimension, got shape \[2, 2\]"),
    ({"index": INDEX[:3]}, ValueError, "index must have one entry for each of the 4 elements along dim, got 3"),
    ({"index": INDEX - 1}, ValueError, r"index must lie in 0 … 0 \(dim_size=1\), got values from -1 to 0"),
    ({"index": INDEX, "dim_size": 1}, ValueError, r"index must lie in 0 … 0 \(dim_size=1\), got values from 0 to 1"),
    ({"index": INDEX, "dim_size": -1}, ValueError, "dim_size must be 0 or more, got -1"),
    ({"dim_size": 5}, ValueError, "dim_size=5 needs index or ptr"),
    (
        {"ptr": torch.tensor([0, 2])},
        ValueError,
        "ptr must rise from 0 to the number of elements, 4, got values from 0 to 2",
    ),
    ({"ptr": torch.tensor([1, 4])}, ValueError, "got values from 1 to 4"),
    ({"ptr": torch.tensor([0, 3, 2, 4])}, ValueError, "that fall in between"),
    (
        {"ptr": torch.tensor([0, 2, 4]), "dim_size": 3},
        ValueError,
        "dim_size=3 does not fit ptr with 3 entries, which makes 2 sets",
    ),
    (
        {"ptr": torch.tensor([], dtype=torch.long)},
        ValueError,
        "ptr must have one entry more than there are sets, got none",
    ),
    ({"ptr": torch.tensor([0.0, 4.0])}, TypeError, "ptr must have an integer type, got torch.float32"),
    ({"weight": [1, 1, 1, 1]}, TypeError, "weight must be a torch.Tensor, got list"),
    ({"weight": torch.ones(3)}, ValueError, r"weight must have shape \[4\] or one that expands to \[4, 3\], got \[3\]"),
    ({"weight": torch.tensor([1.0, 1, -2, 1])}, ValueError, "weight must be 0 or more, got -2"),
    ({"alpha": torch.zeros(2)}, ValueError, r"alpha must be one number or have shape \[3\], got \[2\]"),
    (
        {"f": Sinh(), "alpha": torch.zeros(4)},
        ValueError,
        r"alpha must be one number or have shape \[3\] or \[3, 3\] or \[3, 1\], got \[4\]",
    ),
    ({"beta": torch.zeros(3, 1)}, ValueError, r"beta must be one number or have shape \[3\], got \[3, 1\]"),
    ({"f": Sinh(channels=2)}, ValueError, "f holds parameters for 2 features, but x has 3 in its last dimension"),
    (
        {"f": Sinh(channels=3), "dim": -1},
        ValueError,
        "f holds parameters for 3 features, but x has 1 in its last dimension apart from dim",
    ),
    ({"f": torch.nn.Tanh()}, TypeError, "f must have forward and inverse .* got Tanh"),
    ({"f": Wrong()}, ValueError, r"f must keep the shape of its input, .* it turned \[4, 3\] into \[4\]"),
]


@pytest.mark.parametrize(("given", "kind", "message"), CASES, ids=[message[:40] for *_, message in CASES])
def test_the_function_says_what_is_wrong(given, kind, message):
    with pytest.raises(kind, match=message):
        augmented_f_mean(**{"x": X, "f": Identity(), **given})


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"f": "cosh"}, ValueError, "unknown f 'cosh'; known are sinh, mlp, invertible, mean"),
        ({"f": Sinh}, TypeError, r"f must be an instance, got the class Sinh; write Sinh\(\)"),
        ({"f": torch.nn.Tanh()}, TypeError, "f must have forward and inverse"),
        ({"channels": 0}, ValueError, "channels must be an integer of 1 or more, got 0"),
        ({"channels": 2.0}, ValueError, "channels must be an integer of 1 or more, got 2.0"),
        ({"f": Sinh(channels=2), "channels": 3}, ValueError, "f holds parameters for 2 features"),
        ({"alpha": [1.0, 2.0]}, ValueError, r"alpha must be one number or have shape \[3\], got \[2\]"),
        ({"beta": [1.0, 2.0]}, ValueError, r"beta must be one number, got \[2\]"),
    ],
)
def test_the_module_says_what_is_wrong(given, kind, message):
    with pytest.raises(kind, match=message):
        GenAgg(**given)


def test_there_is_no_such_feature():
    with pytest.raises(IndexError, match="there is no feature 3 in a GenAgg with channels=3"):
        GenAgg(channels=3).feature(3)
