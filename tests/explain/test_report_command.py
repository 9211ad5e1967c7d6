import json

import pytest
import torch
from torch import nn
from torch_geometric.nn import GraphConv
from typer.testing import CliRunner

import fmean.commands.report
from fmean import GenAgg, save
from fmean.commands import app
from fmean.commands.base import console

assert fmean.commands.report  # the command is there once it is imported


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setattr(console, "_width", 160)  # whatever terminal the tests run in


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture
def checkpoint(tmp_path):
    model = nn.Sequential(GraphConv(3, 3, aggr=GenAgg()), GraphConv(3, 3, aggr=GenAgg("mlp")))
    torch.save({"state_dict": model.state_dict()}, tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


def test_says_what_each_layer_does_and_writes_the_page(checkpoint, tmp_path):
    result = run(checkpoint, "--out", tmp_path / "page.html", "--title", "My [bold]net")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("0: ")
    for word in ("\n1: ", "nearest", str(tmp_path / "page.html")):
        assert word in result.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>My [bold]net</title>" in page


def test_a_file_of_save(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(GenAgg(), "pool.pt")
    result = run("pool.pt")
    assert result.exit_code == 0, result.output
    assert "pool: " in result.output
    assert "<title>What pool.pt learned</title>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_history_from_a_file(checkpoint, tmp_path):
    past = {"steps": [0], "layers": {"0": {"alpha": [[0.25]], "beta": [[0.0]], "nearest": [["mean", 0.5]]}}}
    (tmp_path / "history.json").write_text(json.dumps(past))
    result = run(checkpoint, "--out", tmp_path / "page.html", "--history", tmp_path / "history.json")
    assert result.exit_code == 0, result.output
    assert '"history":{"alpha":[[0.25]]' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_is_left_out_is_said(tmp_path):
    model = nn.ModuleDict({"[a]": GenAgg(), "b": GenAgg("invertible")})
    torch.save(model.state_dict(), tmp_path / "model.pt")
    result = run(tmp_path / "model.pt", "--out", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "b is left out: its f cannot be told" in result.output
    assert "[a]: " in result.output


@pytest.mark.parametrize("kind", ["missing", "text", "history", "history_form"])
def test_errors_are_sentences(kind, checkpoint, tmp_path):
    arguments, message = {
        "missing": ([tmp_path / "none.pt"], "there is no file"),
        "text": ([tmp_path / "text"], "is not a checkpoint that torch.save wrote"),
        "history": ([checkpoint, "--history", tmp_path / "text"], "is not a JSON file"),
        "history_form": ([checkpoint, "--history", tmp_path / "list.json"], "history must be a fmean.History"),
    }[kind]
    (tmp_path / "text").write_text("hello")
    (tmp_path / "list.json").write_text("[]")
    result = run(*arguments, "--out", tmp_path / "page.html")
    assert result.exit_code == 1
    assert message in result.output.replace("\n", " ")
    assert "Traceback" not in result.output
    assert not (tmp_path / "page.html").exists()
