"""The benchmark as a whole: killed and going on, several at once, the record, the tables and the plots."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fmean.commands.benchmark  # noqa: F401
from fmean.commands import app
from fmean.experiments.benchmark import __main__ as plain
from fmean.experiments.benchmark import load_model
from fmean.experiments.benchmark.driver import Benchmark, Options, from_words
from fmean.experiments.benchmark.figures import figures
from fmean.experiments.benchmark.output import markdown
from fmean.experiments.benchmark.plots import draw_training
from fmean.experiments.benchmark.runs import Settings
from fmean.experiments.benchmark.scheduler import _heartbeat, here, locally
from fmean.experiments.paper import BENCHMARK, OVERFITTING

from .test_training import COLUMNS, Trainer, trained, values

SMALL = Settings(epochs=2, hidden=8, layers=2, batch_size=16)


def options(folder, **more):
    more = {"datasets": ("pattern",), "aggregators": ("genagg-sinh", "mean"), "seeds": 2, "settings": SMALL} | more
    return Options(out=folder / "out.json", folder=folder / "run", **more)


def done(benchmark):
    """In this process."""
    here(benchmark.jobs, benchmark.place)
    benchmark.write()
    return benchmark.record()


class TestRecord:
    def test_schema(self, tmp_path):
        benchmark = Benchmark(options(tmp_path, datasets=("pattern", "mnist"), seeds=1), "what was typed")
        record = done(benchmark)
        assert {"command", "versions", "machine", "rows"} <= set(record)
        assert record["command"] == "what was typed"
        assert {"torch", "torchmetrics"} < set(record["versions"])
        assert {"pytorch-lightning", "lightning_fabric"} & set(record["versions"])
        assert all(set(row) == COLUMNS for row in record["rows"])
        assert [(row["dataset"], row["aggregator"]) for row in record["rows"]] == [
            ("pattern", "genagg-sinh"), ("pattern", "mean"), ("mnist", "genagg-sinh"), ("mnist", "mean")
        ]  # fmt: skip
        model, info = load_model(tmp_path / "run/models/pattern-paper-genagg-sinh-0.pt")
        assert info["epochs"] == 2
        assert sum(p.numel() for p in model.parameters()) == record["rows"][0]["parameters"]

    def test_finished_runs_are_not_repeated(self, tmp_path, monkeypatch):
        first = done(Benchmark(options(tmp_path, seeds=1)))
        monkeypatch.setattr(Trainer, "run", None)  # nothing may be trained
        assert done(Benchmark(options(tmp_path, seeds=1)))["rows"] == first["rows"]
        for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        assert Benchmark(options(tmp_path, seeds=1)).progress.over  # the record alone is enough

    def test_more_runs_are_added_and_fresh_begins_anew(self, tmp_path):
        first = done(Benchmark(options(tmp_path, seeds=1), "one"))
        second = done(Benchmark(options(tmp_path, aggregators=("max",), seeds=1), "two"))
        assert [row["aggregator"] for row in second["rows"]] == ["genagg-sinh", "mean", "max"]
        assert second["rows"][:2] == first["rows"]
        assert second["command"] == "one; two"
        again = Benchmark(options(tmp_path, aggregators=("max",), seeds=1, fresh=True))
        assert again.progress.finished == 0
        assert len(done(again)["rows"]) == 3

    def test_the_terminal_shows_what_was_asked_for(self, tmp_path, capsys):
        done(Benchmark(options(tmp_path, seeds=1)))
        other = options(tmp_path, aggregators=("max",), seeds=1, settings=replace(SMALL, factor=10.0))
        benchmark = Benchmark(other)
        record = done(benchmark)
        assert [row["aggregator"] for row in benchmark.asked(record)] == ["max"]
        plain._show(benchmark, tmp_path / "out.json")
        shown = capsys.readouterr().out
        assert "own parameters: 10 (paper: 1).\n" in shown
        assert "GenAgg" not in shown
        assert len(record["rows"]) == 3

    def test_data_sets_that_are_missing_are_named_at_once(self, tmp_path, monkeypatch):
        both = {"datasets": ("pattern", "cifar10", "mnist"), "aggregators": ("mean",), "seeds": 1}
        record = done(Benchmark(options(tmp_path, **both)))
        monkeypatch.setenv("FMEAN_CACHE", str(tmp_path / "elsewhere"))
        said = "cifar10, mnist must be made .*: fmean data build cifar10 && fmean data build mnist$"
        with pytest.raises(ValueError, match=said):
            Benchmark(options(tmp_path, **both, fresh=True))
        assert Benchmark(options(tmp_path, **both)).record() == record  # nothing is lost, and nothing is left to do
        with pytest.raises(ValueError, match=said):
            Benchmark(options(tmp_path, **both | {"seeds": 2}))

    def test_a_damaged_record_is_set_aside(self, tmp_path):
        done(Benchmark(options(tmp_path, seeds=1)))
        (tmp_path / "out.json").write_text('{"rows": [{}]}')
        with pytest.warns(UserWarning, match="out.json is damaged"):
            benchmark = Benchmark(options(tmp_path, seeds=1))
        assert len(done(benchmark)["rows"]) == 2

    def test_a_run_that_fails_does_not_keep_the_others_from_being_done(self, tmp_path, monkeypatch):
        whole = Trainer.run

        def run(self):
            if self.job.run.aggregator == "mean":
                raise MemoryError("too large")
            return whole(self)

        monkeypatch.setattr(Trainer, "run", run)
        benchmark = Benchmark(options(tmp_path, seeds=1))
        assert [row["aggregator"] for row in done(benchmark)["rows"]] == ["genagg-sinh"]
        assert benchmark.failures["pattern-paper-mean-0"].startswith("MemoryError: too large (test_driver.py:")


class TestOptions:
    def test_words(self, tmp_path):
        found = from_words(dataset=["mnist"], share=[0.5], seeds=None, epochs=7, fresh=False, device="cpu", workers=2)
        assert found.datasets == ("mnist",)
        assert found.settings == Settings(epochs=7)
        assert (found.seeds, found.workers, found.protocols) == (3, 2, ("paper",))
        quick = from_words(quick=True, epochs=1)
        assert quick.settings.epochs == 1
        assert quick.out == Path("reproduced/benchmark_quick.json")
        assert len(from_words(appendix=True, aggregator=["mean"], seeds=1).runs) == 6

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"device": "tpu"}, "device must be cpu, cuda"),
            ({"seeds": 0}, "seeds must be 1 or more, got 0"),
            ({"save_every": -1.0}, r"save_every must be 0 or more, got -1\.0"),
            ({"datasets": ("x",)}, "unknown dataset 'x'"),
            ({"aggregators": ("authors",)}, "authors needs the package genagg: pip install genagg"),
        ],
    )
    def test_bad_options(self, tmp_path, monkeypatch, bad, message):
        monkeypatch.setitem(sys.modules, "genagg", None)
        monkeypatch.setattr("fmean.experiments.benchmark.aggregators.find_spec", lambda name: None)
        with pytest.raises(ValueError, match=message):
            Benchmark(options(tmp_path, **bad))

    @pytest.mark.parametrize(
        "name",
        [
            "seeds", "workers", "lanes", "devices", "epochs", "batch_size", "hidden", "layers", "factor", "clip",
            "learning_rate",
        ],
    )  # fmt: skip
    def test_0_is_refused_and_not_taken_for_the_default(self, name):
        with pytest.raises(ValueError, match=rf"{name} must be (1 or more|above 0), got 0"):
            from_words(device="cpu", **{name: 0})

    def test_a_share_of_0_is_refused_and_saving_all_the_time_is_not(self):
        with pytest.raises(ValueError, match="share must be above 0"):
            from_words(share=[0.0]).runs  # noqa: B018
        assert from_words(save_every=0.0).save_every == 0

    def test_workers(self, monkeypatch):
        monkeypatch.setattr("torch.cuda.is_available", lambda: True)
        monkeypatch.setattr("fmean.experiments.benchmark.driver.cores", lambda: 16)
        assert [from_words(device=device).workers for device in ("cpu", "cuda", "cuda:0")] == [16, 1, 1]
        assert [from_words(device=device).lanes for device in ("cpu", "cuda", "cuda:0")] == [1, 16, 16]
        assert from_words(device="cuda", devices=2).lanes == 1
        monkeypatch.setattr("fmean.experiments.benchmark.driver.cores", lambda: 2)
        assert from_words(device="cpu").workers == 2

    def test_an_address_means_ray(self, monkeypatch):
        monkeypatch.setattr("fmean.experiments.benchmark.driver.find_spec", lambda name: name)
        assert from_words(ray_address="there:6379").ray
        assert not from_words().ray

    def test_both_commands_say_what_is_wrong(self, tmp_path, capsys):
        with pytest.raises(SystemExit):
            plain.main(["--dataset", "x", "--folder", str(tmp_path), "--out", str(tmp_path / "a.json")])
        assert "unknown dataset 'x'; known are pattern, cluster" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            plain.main(["--help"])
        assert "with 10 % of their graphs" in " ".join(capsys.readouterr().out.split())
        result = CliRunner().invoke(app, ["reproduce", "benchmark", "--protocol", "x"], env={"COLUMNS": "200"})
        assert result.exit_code == 2
        assert "unknown protocol 'x'" in result.output


def start(folder, *more):
    words = ["--dataset", "pattern", "--dataset", "cifar10", "--aggregator", "genagg-sinh", "--aggregator", "softmax"]
    words += ["--seeds", "1", "--epochs", "60", "--hidden", "8", "--layers", "2", "--batch-size", "16"]
    words += ["--out", str(folder / "out.json"), "--folder", str(folder / "run")]
    words += ["--device", "cpu", "--save-every", "0.05"]
    command = [sys.executable, "-W", "ignore", "-m", "fmean.experiments.benchmark", *words, *more]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    # Whoever started the tests in the background may have them ignore Ctrl-C, and with them their children.
    return subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **streams)


def owners(folder):
    """The processes that are at a run which has got somewhere, by the run's name."""
    path = folder / "run/runs.sqlite"
    if not path.exists():
        return {}
    with sqlite3.connect(path, timeout=30) as db:
        try:
            found = db.execute("SELECT name, owner FROM runs WHERE state = 'running'").fetchall()
        except sqlite3.OperationalError:
            return {}
    there = {name: int(owner.split(":")[1]) for name, owner in found}
    return {name: pid for name, pid in there.items() if (folder / f"run/checkpoints/{name}.pt").exists()}


def wait_for(found, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if result := found():
            return result
        time.sleep(0.02)
    raise AssertionError(f"it did not come to that: {process.communicate(timeout=5)[0]}")


def attempts(folder):
    with sqlite3.connect(folder / "run/runs.sqlite") as db:
        return dict(db.execute("SELECT name, attempts FROM runs"))


@pytest.mark.usefixtures("_one_thread")
def test_killed_it_goes_on_and_gives_the_same(tmp_path):
    """The command's process is killed, and replaced; then the command itself; then two processes do the rest."""
    first = start(tmp_path, "--workers", "1")
    killed, pid = next(iter(wait_for(lambda: owners(tmp_path), first).items()))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: {p for p in owners(tmp_path).values() if p != pid}, first)
    first.kill()
    first.communicate()
    before = attempts(tmp_path)
    second = start(tmp_path, "--workers", "2")
    output, _ = second.communicate(timeout=120)
    assert second.returncode == 0, output
    assert "4 of 4 runs" in output
    record = json.loads((tmp_path / "out.json").read_text())
    assert len(record["rows"]) == 4
    after = attempts(tmp_path)
    assert after[killed] >= 2
    assert all(after[name] <= before[name] + 1 for name in after)  # no run was done by both

    benchmark = Benchmark(
        options(
            tmp_path / "whole",
            datasets=("pattern", "cifar10"),
            aggregators=("genagg-sinh", "softmax"),
            seeds=1,
            settings=Settings(epochs=60, hidden=8, layers=2, batch_size=16),
        )
    )
    whole = [values(trained(Trainer(job)).row()) for job in benchmark.jobs]
    assert [values(row) for row in record["rows"]] == whole


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_says_how_to_go_on_and_loses_nothing(tmp_path, stop):
    process = start(tmp_path, "--workers", "1", "--epochs", "100000")
    wait_for(lambda: owners(tmp_path), process)
    process.send_signal(stop)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Stopped; the same command goes on from here." in output
    assert set(attempts(tmp_path).values()) == {0}  # given back


def test_threads_are_shared_out_among_the_processes_that_there_are(tmp_path, monkeypatch):
    given = []

    class Process:
        exitcode = 0

        def __init__(self, target, args):
            given.append(args[2])

        def start(self):
            here(benchmark.jobs, benchmark.place)

        def join(self, seconds):
            pass

        terminate = is_alive = lambda self: False

    context = type("Context", (), {"Process": Process})
    monkeypatch.setattr("multiprocessing.get_context", lambda kind: context)
    monkeypatch.setattr("torch.get_num_threads", lambda: 8)
    benchmark = Benchmark(options(tmp_path, aggregators=("mean",)))  # two runs
    list(locally(benchmark.jobs, benchmark.place, 8))
    assert given == [4, 4]


def test_a_heart_beats_on_when_the_store_is_locked(tmp_path, monkeypatch):
    beats = []

    class Locked:
        def beat(self, name, me, done):
            beats.append(done)
            if len(beats) == 1:
                raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr("fmean.experiments.benchmark.scheduler.BEAT", 0.01)
    with _heartbeat(Locked(), "a", "me") as tick:
        end = time.monotonic() + 10
        while len(beats) < 3 and time.monotonic() < end:
            tick(1.5)
            time.sleep(0.01)
    assert beats[1:3] == [1.5, 1.5]


def test_the_command_in_a_terminal(tmp_path, monkeypatch):
    """Its one worker is this process, for the sake of speed."""
    monkeypatch.chdir(tmp_path)

    def locally(jobs, place, workers):
        here(jobs, place)
        yield Benchmark(from_words(quick=True, epochs=1, hidden=8, layers=2)).progress

    monkeypatch.setattr("fmean.experiments.benchmark.driver.locally", locally)
    words = ["reproduce", "benchmark", "--quick", "--epochs", "1", "--hidden", "8", "--layers", "2"]
    result = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "GenAgg (sinh)" in result.output
    assert "Record: reproduced/benchmark_quick.json" in result.output
    assert len(list(Path("reproduced").glob("benchmark_quick_paper_*.svg"))) == 2


class TestTables:
    def rows(self):
        return [
            {
                "dataset": dataset, "protocol": protocol, "aggregator": name, "seed": seed, "share": share,
                "epochs": 2, "points": [1, 2], "epoch": 2, "parameters": 9, "layers": layers if "g" in name else [],
                "curve": [0.5, value + 0.02 * seed], "train_curve": [0.4, value], "train_accuracy": value,
                "test_accuracy": value + 0.02 * seed,
            }
            for dataset, shares in (("pattern", (1.0, 0.1, 0.01)), ("cifar10", (1.0,)), ("cora", (1.0,)))
            for share in shares
            for protocol in ("paper", "standard")
            for name, value in (("genagg-sinh", 0.9), ("genagg-mlp", 0.8), ("mean", 0.7), ("sum", 0.6), ("max", 0.5))
            for seed in range(2)
            for layers in [[{"alpha": [0.1, None], "beta": 0.2, "nearest": "harmonic_mean", "correlation": 0.987}] * 4]
        ]  # fmt: skip

    def test_figures(self):
        found = figures(self.rows(), "pattern", "paper")["genagg-sinh"]
        assert (round(found.test, 3), round(found.deviation, 3), found.epoch, found.seeds) == (0.91, 0.01, 2, 2)

    def test_the_maximum_of_the_mean_is_not_the_mean_of_the_maxima(self):
        rows = [row for row in self.rows() if row["aggregator"] == "mean" and row["protocol"] == "paper"]
        rows[0]["curve"], rows[1]["curve"] = [1.0, 0.0], [0.0, 0.6]
        assert figures(rows, "pattern", "paper")["mean"].test == 0.5

    def test_rows_of_other_settings_and_of_fewer_epochs_are_left_out(self):
        one = {"hidden": 64, "factor": 10.0, "every": 1}
        rows = [row | {"settings": one} for row in self.rows() if (row["dataset"], row["share"]) == ("pattern", 1.0)]
        rows = [row for row in rows if row["protocol"] == "paper"]
        for row in rows[2:4]:  # genagg-mlp
            row["settings"] = one | {"hidden": 8}
        rows[4] |= {"epochs": 3, "points": [1, 2, 3], "curve": [0.1, 0.2, 0.3], "train_curve": [0.1, 0.2, 0.3]}  # mean
        found = figures(rows, "pattern", "paper")
        assert set(found) == {"genagg-sinh", "mean", "sum", "max"}
        assert (found["mean"].test, found["mean"].epochs, found["mean"].seeds) == (0.3, 3, 1)
        text = markdown({"rows": rows})
        assert "| 1–2 × 2–3 |" in text
        assert "own parameters: 10 (paper: 1). Left out: 3 rows with other settings or of fewer epochs." in text
        assert "MLP" not in text

    def test_what_differs_from_the_papers_is_said(self):
        text = markdown({"rows": [row | {"settings": {"factor": 1.0}} for row in self.rows()]})
        assert "own parameters: 1. GenAgg (MLP) has no BatchNorm within f, which the paper's has, and the" in text
        assert "clipped" not in text
        text = markdown({"rows": [row | {"settings": {"factor": 1.0, "clip": 0.5}} for row in self.rows()]})
        assert "own parameters: 1. Gradients were clipped at a norm of 0.5, which the paper's were not." in text

    def test_markdown(self):
        text = markdown({"rows": self.rows()})
        assert "| PATTERN | **0.910 ±0.010** | 0.810 ±0.010 | 0.710 ±0.010 |" in text
        assert "| the paper's |  | 0.925 ±0.00 | 0.871 ±0.01 | 0.860 ±0.01 | 0.860 ±0.01 | 10 × 1000 |" in text
        assert "GCN 0.557, GraphSage 0.658, PNA 0.704" in text
        assert "| 10% | 0.900 (0.958) | 0.700 (0.903) | 0.600 (0.846) | 0.910 (0.905) |" in text
        assert "| cora, train | 0.900 | 0.800 |" in text
        assert "α 0.10, –; β 0.20; harmonic mean (0.99)" in text
        for block in text.split("\n\n"):
            assert len({line.count("|") for line in block.splitlines() if line.startswith("|")}) <= 1

    def test_markdown_of_tuning(self):
        rows = [row | {"protocol": "tuning"} for row in self.rows() if row["protocol"] == "paper"]
        text = markdown({"rows": [row for row in rows if (row["dataset"], row["share"]) == ("pattern", 1.0)]})
        assert text.startswith("## Tuning: accuracy on the validation split\n")
        assert "| PATTERN | **0.910 ±0.010** | 0.810 ±0.010 | 0.710 ±0.010 |" in text
        assert "the paper's |" not in text

    def test_markdown_of_a_share(self):
        text = markdown({"rows": [row for row in self.rows() if row["share"] == 0.1]})
        assert text.startswith("## Protocol of the paper, 10% of the data: test accuracy\n")
        assert "| PATTERN | **0.910 ±0.010** | 0.810 ±0.010 | 0.710 ±0.010 |" in text
        assert "the paper's |" not in text  # which is of all the data
        assert "| pattern, paper, GenAgg (sinh), 10% of the data | α 0.10" in text

    def test_plots(self, tmp_path):
        names = {path.name for path in draw_training({"rows": self.rows()}, tmp_path / "benchmark.json")}
        assert len(names) == 20
        assert {
            "benchmark_paper_pattern.png",
            "benchmark_paper_pattern_0.1.svg",
            "benchmark_standard_cora.png",
        } <= names

    def test_the_papers_figures(self):
        assert {name: row["genagg"][0] for name, row in BENCHMARK.items()} == {
            "cifar10": 0.540, "mnist": 0.928, "cluster": 0.627, "pattern": 0.925
        }  # fmt: skip
        assert BENCHMARK["mnist"]["pna"] == (0.717, 0.19)
        assert OVERFITTING[0.01]["best baseline"] == (0.846, 0.832)
