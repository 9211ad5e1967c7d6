"""`fmean harden`, with real data."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fmean.commands import app
from fmean.data import load
from fmean.experiments.benchmark import Network, accuracy, load_model, save_model


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, ["harden", *words])


def test_accuracy_before_and_after(run):
    save_model(Network(7, 6, "node", "genagg-sinh", hidden=4, layers=2), "model.pt", "cluster", "paper")
    result = run("model.pt", "--data", "cluster", "--split", "val", "--threshold", "0.01", "--out", "record.json")
    assert result.exit_code == 0, result.output
    record = json.loads(Path("record.json").read_text(encoding="utf-8"))
    model, _ = load_model("model.pt")
    before = accuracy(model, load("cluster", "val"))
    assert record["accuracy_before"] == pytest.approx(before)
    assert [row["calibrated"] for row in record["rows"]] == [True, False]
    assert all(row["replaced"] == row["of"] == 2 and 0 <= row["accuracy"] <= 1 for row in record["rows"])
    assert "2 of 2" in result.output
    assert f"{before:.4f}" in result.output


def test_without_data(run):
    save_model(Network(3, 2, "node", "genagg-mlp", hidden=4, layers=1), "model.pt", "pattern", "paper")
    result = run("model.pt", "--threshold", "1")
    assert result.exit_code == 0, result.output
    assert "convs.0.aggr_module: nearest" in result.output
    assert "0 of 1" in result.output


def test_errors(run, tmp_path):
    (tmp_path / "text.pt").write_text("hello")
    result = run("text.pt")
    assert result.exit_code == 1
    assert "is not a model of fmean reproduce benchmark" in result.output
    assert run("nowhere.pt").exit_code == 1
    save_model(Network(3, 2, "node", "mean", hidden=4, layers=1), "mean.pt", "pattern", "paper")
    result = run("mean.pt")
    assert result.exit_code == 1
    assert "there is no GenAgg in" in result.output
