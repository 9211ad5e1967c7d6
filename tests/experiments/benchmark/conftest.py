import pytest
import torch

from fmean.experiments.benchmark import training

from . import tiny


@pytest.fixture(scope="session")
def _built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    tiny.build(folder)
    return folder


@pytest.fixture(autouse=True)
def _tiny(_built, monkeypatch):
    """Also in the processes that a test starts."""
    monkeypatch.setenv("FMEAN_CACHE", str(_built))
    training._prepared.cache_clear()


@pytest.fixture
def _one_thread(monkeypatch):
    """Here and in the processes that a test starts: with other threads, sums are added up in another order."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
