import itertools
import json
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from torch_geometric.nn.aggr import SumAggregation
from typer.testing import CliRunner

from fmean import GenAgg
from fmean.commands import app
from fmean.experiments.bars import draw_bars, grouped, ratio, warning
from fmean.experiments.bench import Bench, Settings, WrongResultError
from fmean.experiments.contenders import METHODS, check, contender
from fmean.experiments.measure import milliseconds, peak_mib
from fmean.experiments.workloads import CASES, WORKLOADS, Case, draw

CPU = torch.device("cpu")
COLUMNS = {"workload", "level", "method", "forward_ms", "forward_backward_ms", "peak_mib", "nodes", "edges", "features"}
FEW = ("pyg-sum", "pyg-mean")


def quick(tmp_path, *methods, workloads=("paper",)):
    return Bench(Settings("cpu", True, workloads, methods), tmp_path / "bench.json")


class TestWorkloads:
    @pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.workload}, {case.level}")
    def test_shapes(self, case):
        case = case.divided(2000)
        data = draw(case, CPU)
        targets = data.index if case.level == "aggregation" else data.index[1]
        rows = targets.numel() if case.level == "aggregation" else case.nodes
        assert data.x.shape == (rows, 64)
        assert data.grad.shape == (case.nodes, 64)
        assert data.index.min() >= 0
        assert data.index.max() < case.nodes
        assert (targets.diff() >= 0).all() == (case.level == "aggregation" and case.layers == 1)

    def test_the_papers_size(self):
        assert (CASES[0].nodes, CASES[0].edges) == (72_000, 578_000)
        assert [case.edges for case in Settings("cpu", False, ("paper",)).cases()] == [57_800] * 3
        assert [case.edges for case in Settings("cpu", True, ("paper",)).cases()] == [2_890] * 3

    def test_small_graphs_are_not_made_smaller(self):
        assert [case.edges for case in Settings("cpu", True, ("molecules",)).cases()] == [1_728] * 2

    def test_no_edge_leaves_its_block(self):
        source, target = draw(Case("cluster", "layer", 590, 3000, "blocks"), CPU).index
        assert (source // 118 == target // 118).all()


class TestMeasure:
    def test_peak_of_a_sum_is_result_and_gradient(self):
        case = Case("paper", "aggregation", 100, 1000)
        one = contender("pyg-sum", case, draw(case, CPU))
        one.forward_backward()
        assert peak_mib(one.forward_backward, CPU) == pytest.approx((100 + 1000) * 64 * 4 / 2**20)

    def test_what_is_released_does_not_count(self):
        def run():
            for _ in range(5):
                torch.ones(2**18)

        assert peak_mib(run, CPU) == pytest.approx(1.0)

    def test_milliseconds(self):
        times = milliseconds(lambda: time.sleep(0.01), 3, CPU)
        assert len(times) == 3
        assert all(9 < t < 500 for t in times)


class TestContenders:
    case = Case("paper, unsorted, 4 layers", "aggregation", 20, 100, layers=4)

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("level", ["aggregation", "layer"])
    def test_every_method_runs(self, method, level):
        if method == "authors-genagg":
            pytest.importorskip("genagg")
        if method.startswith("fmean-") and level == "layer":
            pytest.importorskip("fmean.nn")
        case = Case("paper", level, 20, 100)
        one = contender(method, case, draw(case, CPU))
        y, dx, *_ = one.forward_backward()
        assert y.shape == (20, 64)
        assert dx.shape == one.data.x.shape
        assert y.isfinite().all()
        assert not one.forward()[0].requires_grad
        if method.startswith("fmean-"):
            check(one)

    def test_beta_is_not_zero(self):
        for f in ("sinh", "mlp", "invertible"):
            agg = METHODS[f"fmean-{f}"]()
            assert agg.beta.item() == pytest.approx(0.1)
            assert agg.beta.requires_grad
            assert agg.training

    def test_layers_share_one_new_index(self, monkeypatch):
        seen = []

        class Spy(SumAggregation):
            def forward(self, x, index, *args, **kwargs):
                seen.append(index)
                return super().forward(x, index, *args, **kwargs)

        monkeypatch.setitem(METHODS, "pyg-sum", Spy)
        one = contender("pyg-sum", self.case, draw(self.case, CPU))
        one.forward_backward()
        one.forward()
        assert len(seen) == 8
        assert len({id(index) for index in seen[:4]}) == len({id(index) for index in seen[4:]}) == 1
        assert seen[0] is not seen[4]

    @pytest.mark.parametrize("what", ["result", "gradient of x", "gradient of f.w"])
    def test_a_wrong_result_is_found(self, monkeypatch, what):
        """An f whose other path, not the plain one, is wrong by one per cent in one place."""

        class Wrong(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(()))

            def forward(self, x):
                factor = 1.01 if not contenders_plain() else 1.0
                scale = {"result": lambda t: t * factor, "gradient of x": lambda t: _Scaled.apply(t, factor)}
                w = _Scaled.apply(self.w, factor) if what == "gradient of f.w" else self.w
                return w * scale.get(what, lambda t: t)(x)

            def inverse(self, s):
                return s

        def contenders_plain():
            from fmean.kernels import fused

            return fused._plain

        monkeypatch.setitem(METHODS, "fmean-sinh", lambda: GenAgg(Wrong()))
        one = contender("fmean-sinh", self.case, draw(self.case, CPU))
        with pytest.raises(WrongResultError, match=rf"fmean-sinh .* the {what}.* differs .* by 0\.01"):
            check(one)


class _Scaled(torch.autograd.Function):
    """The identity, with a gradient that is too large by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class TestBench:
    def test_rows(self, tmp_path):
        bench = quick(tmp_path, *FEW)
        assert len(list(bench.run())) == bench.steps
        record = json.loads((tmp_path / "bench.json").read_text())
        assert set(record) == {"command", "versions", "machine", "rows", "settings", "threads", "finished"}
        assert record["finished"]
        assert record["rows"] == bench.rows
        assert [(row["workload"], row["level"], row["method"]) for row in record["rows"]] == [
            ("paper", "aggregation", "pyg-sum"),
            ("paper", "aggregation", "pyg-mean"),
            ("paper", "layer", "pyg-sum"),
            ("paper", "layer", "pyg-mean"),
            ("paper, unsorted, 4 layers", "aggregation", "pyg-sum"),
        ]
        for row in record["rows"]:
            assert set(row) - {"layers", "note", "noise"} == COLUMNS
            assert row["edges"] == 2_890
            if "note" not in row:
                assert row["forward_ms"] > 0
                assert row["forward_backward_ms"] > 0
                assert row["peak_mib"] > 0
                assert row["noise"] >= 0

    def test_what_lacks_memory_gets_a_note(self, tmp_path, monkeypatch):
        def full():
            raise torch.OutOfMemoryError

        monkeypatch.setitem(METHODS, "pyg-mean", full)
        bench = quick(tmp_path, *FEW, workloads=("cluster",))
        assert len(list(bench.run())) == bench.steps
        row = bench.rows[1]
        assert row["note"] == "not enough memory"
        assert row["forward_ms"] is row["forward_backward_ms"] is row["peak_mib"] is None
        assert bench.rows[0]["forward_ms"] > 0
        assert draw_bars(json.loads(bench.out.read_text()), tmp_path / "bench.png").stat().st_size > 1000

    def test_stopped_and_continued(self, tmp_path):
        bench = quick(tmp_path, *FEW)
        for _ in itertools.islice(bench.run(), 1 + 2 * (1 + bench.rounds)):  # all of the first case
            pass
        first = json.loads(bench.out.read_text())
        assert not first["finished"]
        assert [row["method"] for row in first["rows"]] == list(FEW)
        again = quick(tmp_path, *FEW)
        assert again.rows == first["rows"]
        list(again.run())
        assert json.loads(bench.out.read_text())["rows"][:2] == first["rows"]
        assert quick(tmp_path, *FEW).rows == []  # a finished one is measured anew

    def test_a_wrong_result_ends_it(self, tmp_path, monkeypatch):
        def wrong(one):
            raise WrongResultError("the result differs")

        monkeypatch.setattr("fmean.experiments.bench.check", wrong)
        with pytest.raises(WrongResultError):
            list(quick(tmp_path, "fmean-sinh").run())
        assert not (tmp_path / "bench.json").exists()

    def test_bad_settings(self):
        with pytest.raises(ValueError, match=r"unknown workload 'papers'; known are paper, products"):
            Settings("cpu", workloads=("papers",))
        with pytest.raises(ValueError, match=r"unknown method 'sum'; known are pyg-sum"):
            Settings("cpu", methods=("sum",))
        with pytest.raises(ValueError, match="device must be cpu or cuda, got 'tpu'"):
            Settings("tpu")
        with pytest.raises(ValueError, match="nothing to measure of products on cpu"):
            Settings("cpu", workloads=("products",))

    def test_quick_figures_stay_out_of_results(self):
        assert "results" not in Settings("cpu", True).out.parts
        assert str(Settings("cpu").out) == "results/bench_cpu.json"


def test_ratio():
    case = [{"method": "pyg-sum", "forward_ms": 2.0}, {"method": "a", "forward_ms": 5.0}, {"method": "b"}]
    assert [ratio(row, case, "forward_ms") for row in case] == [1.0, 2.5, None]
    assert ratio(case[1], case[1:], "forward_ms") is None
    rows = [{"workload": "a", "level": "layer"}, {"workload": "b", "level": "layer"}]
    assert grouped([*rows, rows[0]]) == [[rows[0], rows[0]], [rows[1]]]


def test_noise_is_said():
    assert warning([{"method": "a", "noise": 0.1}, {"method": "b"}]) == ""
    assert warning([{"method": "a", "noise": 2.0}, {"method": "b", "noise": 0.1}]).endswith(
        "(was the machine busy?): a"
    )


class TestCommand:
    def run(self, *arguments):
        return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "160"})

    def test_measures_and_draws(self, tmp_path):
        out = tmp_path / "a" / "bench.json"
        arguments = ["--quick", "--device", "cpu", "--workload", "paper", "--out", str(out)]
        result = self.run(*arguments, "--method", "pyg-sum", "--method", "pyg-mean")
        assert result.exit_code == 0, result.output
        for word in ("paper · layer", "pyg-mean", "× sum", "1.00", "2,890 edges", "fwd + bwd, ms"):
            assert word in result.output
        assert out.with_suffix(".png").stat().st_size > 1000
        out.with_suffix(".png").unlink()
        old = out.read_text()
        shown = self.run("--chart", str(out))
        assert "pyg-mean" in shown.output
        assert out.with_suffix(".png").exists()
        assert out.read_text() == old

    def test_the_extra_that_is_missing_is_named_whole(self, tmp_path, monkeypatch):
        monkeypatch.setattr("fmean.experiments.bench.find_spec", lambda name: None)
        arguments = ["--quick", "--device", "cpu", "--workload", "molecules", "--out", str(tmp_path / "bench.json")]
        result = self.run(*arguments, "--method", "pyg-sum", "--method", "authors-genagg")
        assert "pip install 'fmean[bench]'" in result.output

    def test_errors(self):
        result = self.run("--workload", "papers", "--device", "cpu")
        assert result.exit_code == 2
        assert "unknown workload" in result.output
        assert all(name in self.run("--help").output for name in WORKLOADS)

    def test_killed_keeps_what_is_complete(self, tmp_path):
        """A real process, killed without warning."""
        out = tmp_path / "bench.json"
        options = ["--quick", "--device", "cpu", "--method", "pyg-sum", "--method", "pyg-softmax", "--out", str(out)]
        process = subprocess.Popen([sys.executable, "-m", "fmean", "bench", *options], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        record = json.loads(out.read_text())
        assert not record["finished"]
        assert record["command"].startswith("fmean bench --quick")
        assert str(tmp_path) not in record["command"]
        assert [row["method"] for row in record["rows"][:2]] == ["pyg-sum", "pyg-softmax"]
        assert all(row["forward_ms"] > 0 for row in record["rows"])
