"""The runs over a Ray cluster of this machine."""

import os
import signal

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
