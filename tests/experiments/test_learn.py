import itertools
import json
import signal
import subprocess
import sys
import time

import pytest
import torch
from typer.testing import CliRunner

from fmean import STANDARD, load, standard
from fmean.commands import app
from fmean.commands.base import console
from fmean.experiments.graphs import random_graphs
from fmean.experiments.learn import Learner, Settings, correlation


def test_the_graphs_are_the_papers():
    graphs, nodes = 4000, 8
    sets = random_graphs(graphs, 6, torch.Generator().manual_seed(0))
    degree = torch.bincount(sets.index, minlength=sets.nodes)
    assert sets.nodes == graphs * nodes
    assert degree.min() >= 1
    assert degree.max() <= nodes - 1
    # The rescue of lonely nodes (one in 19) adds a little to the density of 0.3.
    assert degree.sum() / (graphs * nodes**2) == pytest.approx(0.3, abs=0.02)
    assert (sets.index.diff() >= 0).all()
    assert sets.x.mean().abs() < 0.01
    assert sets.x.std() == pytest.approx(1, abs=0.01)


def test_correlation_is_pearsons():
    a, b = torch.randn(50, 2, 3), torch.randn(50, 2, 3)
    for i in range(3):
        expected = torch.corrcoef(torch.stack([a[..., i].flatten(), b[..., i].flatten()]))[0, 1]
        torch.testing.assert_close(correlation(a, b)[i], expected)


def test_bad_settings():
    with pytest.raises(ValueError, match="unknown target median; the 13 are mean"):
        Settings(targets=("median",))
    with pytest.raises(ValueError, match="unknown f 'cosh'; known are sinh, mlp, invertible"):
        Settings(f="cosh")
    with pytest.raises(ValueError, match="steps must be 1 or more, got 0"):
        Settings(steps=0)


@pytest.mark.parametrize("f", ["sinh", "mlp", "invertible"])
def test_learns_in_a_few_steps(f):
    learner = Learner(Settings(("mean", "sum", "max", "standard_deviation"), f, steps=400, graphs=16))
    for _ in learner.train():
        pass
    learned = learner.result()
    assert [one.target for one in learned] == ["mean", "sum", "max", "standard_deviation"]
    for one in learned:
        assert one.correlation > (0.9 if f == "sinh" else 0.7)
        assert sorted(name for name, _ in one.nearest) == sorted(STANDARD)
    if f == "sinh":
        assert [one.nearest[0][0] for one in learned] == ["mean", "sum", "max", "standard_deviation"]


def test_goes_on_where_it_stopped(tmp_path):
    settings = Settings(("mean", "max"), steps=30, graphs=4)
    whole = Learner(settings)
    for _ in whole.train():
        pass
    for steps in (7, 11, 100):
        learner = Learner(settings, tmp_path / "training.pt")
        for _ in itertools.islice(learner.train(), steps):
            pass
    assert learner.step == 30
    for a, b in zip(whole.models[0].parameters(), learner.models[0].parameters(), strict=True):
        assert torch.equal(a, b)


def test_other_settings_start_anew(tmp_path):
    for steps in (5, 6):
        learner = Learner(Settings(("mean",), steps=steps, graphs=2), tmp_path / "training.pt")
        assert learner.step == 0
        for _ in learner.train():
            pass


def test_a_damaged_checkpoint_is_set_aside(tmp_path):
    path = tmp_path / "training.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.warns(UserWarning, match=r"training.pt is damaged .* training starts anew"):
        learner = Learner(Settings(("mean",), steps=5, graphs=2), path)
    assert learner.step == 0
    assert any("damaged" in p.name for p in tmp_path.iterdir())


def test_the_default_run_learns_all_13():
    """`fmean learn` as it is; README has its time."""
    learner = Learner(Settings())
    for _ in learner.train():
        pass
    learned = learner.result()
    assert [one.target for one in learned] == list(STANDARD)
    assert min(one.correlation for one in learned) >= 0.98
    assert [one.nearest[0][0] for one in learned] == list(STANDARD)


class TestCommand:
    @pytest.fixture(autouse=True)
    def _wide(self, monkeypatch):
        monkeypatch.setattr(console, "_width", 160)  # whatever terminal the tests run in

    def run(self, *arguments):
        return CliRunner().invoke(app, list(arguments))

    def test_saves_what_it_learned(self, tmp_path):
        arguments = ["learn", "--target", "mean", "--target", "max", "--steps", "60", "--out", str(tmp_path)]
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        for word in ("mean", "max", "correlation", "paper", "nearest", "α", "β", "1.000", "0.990"):
            assert word in result.output
        folder = tmp_path / "sinh"
        for name in ("mean.pt", "max.pt", "mean.png", "max.png", "overview.png", "table.json"):
            assert (folder / name).stat().st_size > 100
        record = json.loads((folder / "table.json").read_text())
        assert {"command", "versions", "machine", "rows", "seconds"} == set(record)
        sets = random_graphs(4000, 6, torch.Generator().manual_seed(9))
        for row in record["rows"]:
            y_hat = load(folder / f"{row['target']}.pt")(sets.x, sets.index, dim_size=sets.nodes)
            y = standard(row["target"])(sets.x, sets.index, dim_size=sets.nodes)
            measured = torch.corrcoef(torch.stack([y_hat.flatten(), y.flatten()]))[0, 1].item()
            assert measured == pytest.approx(row["correlation"], abs=0.02)
        again = self.run(*arguments)
        assert "Learned already" in again.output
        assert "Learned already" not in self.run(*arguments, "--fresh").output

    def test_errors(self):
        result = self.run("learn", "--target", "median")
        assert result.exit_code == 2
        assert "unknown target median" in result.output
        assert self.run("learn", "--f", "cosh").exit_code == 2

    def test_version_and_help(self):
        from fmean import __version__

        assert self.run("--version").output.strip() == __version__
        assert "learn" in self.run("--help").output

    def test_killed_and_continued(self, tmp_path):
        """A real process, killed without warning, then run to its end; the same as one never killed."""

        def command(out):
            return [sys.executable, "-m", "fmean", "learn", "--target", "max", "--steps", "12000", "--out", str(out)]

        process = subprocess.Popen(command(tmp_path / "a"), stdout=subprocess.DEVNULL)
        checkpoint = tmp_path / "a" / "sinh" / "training.pt"
        deadline = time.monotonic() + 120
        while not checkpoint.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert 0 < torch.load(checkpoint, weights_only=True)["step"] < 12000
        output = subprocess.run(command(tmp_path / "a"), check=True, capture_output=True, text=True).stdout
        assert "Going on at step" in output
        subprocess.run(command(tmp_path / "b"), check=True, capture_output=True)
        rows = [json.loads((tmp_path / name / "sinh" / "table.json").read_text())["rows"] for name in "ab"]
        assert rows[0] == rows[1]
