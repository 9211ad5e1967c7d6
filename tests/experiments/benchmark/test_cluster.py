"""The runs over a Ray cluster of this machine."""

import os
import signal
import sqlite3

import pytest

from fmean.experiments.benchmark import cluster
from fmean.experiments.benchmark.driver import Benchmark
from fmean.experiments.benchmark.runs import Settings

from .test_driver import options
from .test_training import Trainer, trained, values

ray = pytest.importorskip("ray")


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.filterwarnings("ignore")
def test_two_workers_one_of_them_killed(tmp_path):
    """Every row is there at the end, as it would be without Ray."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        settings = Settings(epochs=60, hidden=8, layers=2, batch_size=16)
        benchmark = Benchmark(options(tmp_path, settings=settings, ray=True, workers=2, save_every=0.05))
        killed = 0
        for _ in benchmark.run():
            if not killed and (found := at_work()) and list((tmp_path / "run/checkpoints").glob("*.pt")):
                killed = next(iter(found))
                os.kill(killed, signal.SIGKILL)
        assert killed
        assert benchmark.progress.finished == 4, benchmark.failures
        assert not benchmark.failures
        record = benchmark.record()
    finally:
        ray.shutdown()
    whole = [values(trained(Trainer(job)).row()) for job in benchmark.jobs]
    order = {(row["aggregator"], row["seed"]): values(row) for row in record["rows"]}
    assert [order[row["aggregator"], row["seed"]] for row in whole] == whole
    assert len(list((tmp_path / "run/models").glob("*.pt"))) == 4


def at_work():
    """The numbers of the processes that are at a run."""
    return {pid for _, pid in ray.get(ray.get_actor(cluster.BOARD).read.remote()).values()}


def test_without_ray_it_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"--ray needs ray: pip install 'fmean\[ray\]'"):
        cluster._ray()


@pytest.mark.usefixtures("_one_thread")
@pytest.mark.filterwarnings("ignore")
def test_a_run_that_another_command_takes_over_ends_nothing(tmp_path):
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        settings = Settings(epochs=3000, hidden=8, layers=2, batch_size=16)
        benchmark = Benchmark(options(tmp_path, settings=settings, seeds=1, ray=True, workers=1))
        lost = ""
        for _ in benchmark.run():
            with sqlite3.connect(benchmark.place.store) as db:
                if not lost and (found := db.execute("SELECT name FROM runs WHERE state = 'running'").fetchone()):
                    lost = found[0]
                    db.execute("UPDATE runs SET state = 'finished', owner = NULL WHERE name = ?", found)
                elif lost:
                    db.execute("UPDATE runs SET state = 'finished', owner = NULL WHERE state = 'running'")
                    db.execute("UPDATE runs SET state = 'finished' WHERE state = 'waiting'")
            db.close()
        assert benchmark.progress.over
        assert not benchmark.failures
    finally:
        ray.shutdown()
