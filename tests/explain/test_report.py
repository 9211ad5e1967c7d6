import base64
import hashlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv, SAGEConv
from torch_geometric.nn.aggr import MultiAggregation

from fmean import STANDARD, GenAgg, History, standard
from fmean.explain.report import report
from fmean.functions import Power, ScalarFunction


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(4, 8, aggr=GenAgg()), SAGEConv(8, 8, aggr=GenAgg(channels=8))])
        self.readout = GenAgg("mlp")


def data_of(path):
    page = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_every_aggregation_of_a_model(tmp_path):
    data = data_of(report(Net(), tmp_path / "deep" / "report.html"))
    assert data["model"] == "Net"
    assert [(layer["name"], layer["kind"]) for layer in data["layers"]] == [
        ("convs.0", "GraphConv(4 → 8)"),
        ("convs.1", "SAGEConv(8 → 8)"),
        ("readout", "Net"),
    ]
    for layer in data["layers"]:
        assert sorted(name for name, _ in layer["nearest"]) == sorted(STANDARD)
        assert layer["text"]
    assert [len(layer["features"]) for layer in data["layers"]] == [0, 8, 0]
    assert [layer["explore"] is None for layer in data["layers"]] == [False, True, True]


def test_the_explorer_gets_the_heaviest_channel(tmp_path):
    agg = GenAgg(alpha=[0.1, 0.2, 0.3], beta=0.5)
    with torch.no_grad():
        agg.f.omega.copy_(torch.tensor([0.0, 1.0, 3.0]))
        agg.f.parts[2].rho.fill_(0.0)
        agg.f.parts[2].c.fill_(-2.0)
    (layer,) = data_of(report(agg, tmp_path / "report.html"))["layers"]
    assert layer["explore"] == {"f": "sinh(p·log|x| + c)", "alpha": 0.3, "beta": 0.5, "p": 1.0, "c": -2.0}


def test_an_aggregation_alone(tmp_path):
    (layer,) = data_of(report(standard("max"), tmp_path / "report.html"))["layers"]
    assert layer["name"] == "GenAgg"
    assert layer["nearest"][0] == ["max", 1.0]


def test_a_layer_alone_and_one_within_another(tmp_path):
    (layer,) = data_of(report(GraphConv(2, 3, aggr=GenAgg()), tmp_path / "report.html"))["layers"]
    assert (layer["name"], layer["kind"]) == ("GraphConv", "GraphConv(2 → 3)")
    model = nn.Sequential(GraphConv(2, 3, aggr=MultiAggregation(["max", GenAgg()], mode="sum")))
    (layer,) = data_of(report(model, tmp_path / "report.html"))["layers"]
    assert layer["name"] == "0.aggr_module.aggrs.1"


def test_a_shared_aggregation_has_one_card(tmp_path):
    agg = GenAgg()
    (layer,) = data_of(report(nn.Sequential(agg, agg, agg), tmp_path / "report.html"))["layers"]
    assert (layer["name"], layer["also"]) == ("0", ["1", "2"])


def test_names_of_ones_own(tmp_path):
    data = data_of(report({"first": GenAgg(), "second": GenAgg()}, tmp_path / "report.html"))
    assert [layer["name"] for layer in data["layers"]] == ["first", "second"]


@pytest.mark.parametrize("nothing", [nn.Linear(2, 2), GraphConv(2, 2), {}], ids=["linear", "conv", "empty"])
def test_nothing_to_report(nothing, tmp_path):
    with pytest.raises(ValueError, match=r"there is no GenAgg in (Linear|GraphConv|what was given)"):
        report(nothing, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_history_goes_to_its_layer(tmp_path):
    past = {"alpha": [[0.0], [0.5]], "beta": [[0.0], [0.1]], "nearest": [["mean", 0.5], ["max", 0.75]]}
    history = {"steps": [0, 10], "layers": {"convs.0": past, "readout": past, "gone": past}}
    data = data_of(report(Net(), tmp_path / "report.html", history))
    assert [layer.get("history") for layer in data["layers"]] == [
        past | {"steps": [0, 10]},
        None,
        past | {"steps": [0, 10]},
    ]


def test_a_recorded_history(tmp_path):
    model = Net()
    recorded = History(model, every=1)
    recorded.step()
    for outer in (model, nn.Sequential(model)):  # recorded of the model itself, or of one within it
        data = data_of(report(outer, tmp_path / "report.html", recorded))
        assert [layer["history"]["steps"] for layer in data["layers"]] == [[0]] * 3
    agg = GenAgg()
    recorded = History(agg, every=1)
    recorded.step()
    (layer,) = data_of(report({"saved": agg}, tmp_path / "report.html", recorded))["layers"]
    assert layer["history"]["steps"] == [0]


def test_a_history_that_is_none(tmp_path):
    with pytest.raises(ValueError, match=r"history must be a fmean.History or its to_dict\(\), got list"):
        report(Net(), tmp_path / "report.html", [1, 2])


HOSTILE = "</script><script>alert(1)</script>\u2028{{script}}\" onload='x' 🦊 \ud800"


def test_names_cannot_leave_their_place(tmp_path):
    path = report({HOSTILE: GenAgg()}, tmp_path / "report.html", title=HOSTILE)
    page = path.read_text(encoding="utf-8")
    assert page.count("<script") == page.count("</script") == 3
    assert "alert(1)</script>" not in page
    assert data_of(path)["layers"][0]["name"] == HOSTILE
    assert page.count("{{script}}") == 3  # in the title, twice, and in the data: never filled in


def test_the_policy_allows_these_scripts_and_nothing_else(tmp_path):
    page = report(GenAgg(), tmp_path / "report.html").read_bytes().decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert f"script-src 'sha256-{hashes[0]}' 'sha256-{hashes[1]}';" in policy
    assert not re.search(r"""<(?!script)[^>]*\b(src|href)=["'](?!#)""", page[: page.index('id="data"')])


def test_the_scripts_never_read_html():
    module = sys.modules[report.__module__]
    for name in module.SCRIPTS:
        text = (Path(module.__file__).parent / "page" / f"{name}.js").read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|fetch\(|XMLHttp", text)


def test_what_is_not_finite_becomes_null(tmp_path):
    class Odd(ScalarFunction):
        def forward(self, x):
            return torch.where(x > 0, torch.nan, x)

        def inverse(self, s):
            return s

    assert data_of(report(GenAgg(Odd()), tmp_path / "report.html"))["layers"]
    assert data_of(report(GenAgg(Power(-300)), tmp_path / "report.html"))["layers"]


def test_parameters_that_are_no_numbers_are_marked(tmp_path):
    lost = GenAgg()
    with torch.no_grad():
        lost.f.parts[0].rho.fill_(torch.nan)
    layers = data_of(report({"lost": lost, "sound": GenAgg()}, tmp_path / "report.html"))["layers"]
    assert [layer["finite"] for layer in layers] == [False, True]
    assert [layer["explore"] is None for layer in layers] == [True, False]


def test_without_plotly(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.delitem(sys.modules, "plotly.offline", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fmean\[report\]'"):
        report(GenAgg(), tmp_path / "report.html")
