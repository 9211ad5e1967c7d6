"""The store: claims of several processes at once, leases, and what is there already."""

import os
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from fmean.experiments.benchmark import store as store_module
from fmean.experiments.benchmark.runs import Job, Run, Settings
from fmean.experiments.benchmark.store import LostRunError, OtherSettingsError, Store, owner

ME, OTHER = owner(), f"{store_module.node()}:999999999:12345"


def job(seed=0, protocol="paper", **settings):
    return Job.of(Run("pattern", protocol, "mean", seed), Settings(**{"epochs": 4} | settings))


def row(one, epochs=4):
    run = one.run
    key = {"dataset": run.dataset, "protocol": run.protocol, "aggregator": run.aggregator, "seed": run.seed}
    return key | {"share": run.share, "epochs": epochs, "settings": one.identity, "test_accuracy": 0.5}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite")


def names(jobs):
    return [one.run.name for one in jobs]


def change(store, **columns):
    with sqlite3.connect(store.path) as db:
        for name, value in columns.items():
            db.execute(f"UPDATE runs SET {name} = ?", (value,))


def test_a_run_from_its_plan_to_its_row(store):
    one = job()
    store.plan([one])
    assert store.claim(names([one]), ME) == one.run.name
    store.beat(one.run.name, ME, 1.5)
    assert store.progress(names([one])).epochs_done == 1.5
    store.finish(one.run.name, ME, row(one))
    assert store.rows() == [row(one)]
    assert store.progress(names([one])).over
    assert store.claim(names([one]), ME) is None
    store.plan([one])  # again: nothing to do
    assert store.progress(names([one])).over


def test_many_at_once_never_have_the_same_run(store):
    jobs = [job(seed) for seed in range(60)]
    store.plan(jobs)
    start = threading.Barrier(8)

    def take(i):
        start.wait()
        found, mine = [], Store(store.path)
        while (name := mine.claim(names(jobs), f"machine{i}:1:1")) is not None:
            found.append(name)
        return found

    with ThreadPoolExecutor(8) as pool:
        found = [name for part in pool.map(take, range(8)) for name in part]
    assert sorted(found) == sorted(names(jobs))


def test_only_what_was_asked_for_is_claimed(store):
    store.plan([job(0), job(1)])
    assert store.claim([job(1).run.name], ME) == job(1).run.name
    assert store.claim([job(1).run.name], OTHER) is None


class TestTakingOver:
    def test_a_dead_process_at_once(self, store):
        store.plan([job()])
        assert store.claim(names([job()]), OTHER)
        assert store.claim(names([job()]), ME) == job().run.name

    def test_a_living_one_not_before_its_lease_is_over(self, store):
        store.plan([job()])
        assert store.claim(names([job()]), ME)
        assert store.claim(names([job()]), "elsewhere:1:1") is None
        change(store, beat=time.time() - store_module.LEASE - 1)
        assert store.claim(names([job()]), "elsewhere:1:1")
        for late in (lambda: store.beat(job().run.name, ME, 1), lambda: store.finish(job().run.name, ME, row(job()))):
            with pytest.raises(LostRunError, match="taken over by another process"):
                late()
        assert store.rows() == []

    def test_one_of_another_machine_when_its_lease_is_over(self, store):
        store.plan([job()])
        assert store.claim(names([job()]), "elsewhere:1:1")
        assert store.claim(names([job()]), ME) is None
        change(store, beat=time.time() - store_module.LEASE - 1)
        assert store.claim(names([job()]), ME)

    def test_a_run_that_kills_its_processes_fails(self, store):
        store.plan([job()])
        for _ in range(store_module.ATTEMPTS):
            assert store.claim(names([job()]), OTHER)
        assert store.claim(names([job()]), ME) is None
        assert "died 5 times" in store.failures(names([job()]))[job().run.name]

    def test_one_that_was_stopped_waits_again(self, store):
        store.plan([job()])
        for _ in range(2 * store_module.ATTEMPTS):  # stopping is not dying
            assert store.claim(names([job()]), ME)
            store.release(ME)

    def test_this_process_lives(self):
        assert not store_module._is_dead(ME)
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        gone = f"{store_module.node()}:{pid}:{store_module._began(pid)}"
        os.waitpid(pid, 0)
        assert store_module._is_dead(gone)


class TestWhatIsThere:
    def test_failures_are_tried_again(self, store):
        store.plan([job()])
        store.claim(names([job()]), ME)
        store.fail(job().run.name, ME, "no memory")
        assert store.failures(names([job()])) == {job().run.name: "no memory"}
        assert store.progress(names([job()])).over
        store.plan([job()])
        assert store.claim(names([job()]), ME)

    def test_more_epochs(self, store):
        store.plan([job()], [row(job())])
        assert store.progress(names([job()])).finished == 1
        store.plan([job(epochs=2)])
        assert store.progress(names([job()])).finished == 1
        store.plan([job(epochs=9)])
        assert store.claim(names([job()]), ME)
        assert store.progress(names([job()])).epochs == 9

    def test_other_settings_are_refused(self, store):
        store.plan([job()])
        with pytest.raises(OtherSettingsError, match=r"factor 1\.0 and not 2\.0.*--fresh"):
            store.plan([job(factor=2.0)])
        with pytest.raises(OtherSettingsError, match="hidden 64 and not 8"):
            store.plan([job(1, hidden=8)], [row(job(1))])
        assert store.claim([job(1).run.name], ME) is None  # nothing of that plan is there

    def test_a_recorded_row_of_fewer_epochs_does_not_count(self, store):
        store.plan([job(epochs=9)], [row(job(epochs=9), epochs=4)])
        assert store.claim(names([job()]), ME)

    def test_forgotten(self, store):
        store.plan([job()], [row(job())])
        store.forget(names([job()]))
        assert store.rows() == []


def test_many_open_a_new_store_at_once(tmp_path):
    for i in range(10):
        path, start = tmp_path / f"{i}.sqlite", threading.Barrier(8)

        def open_it(_, path=path, start=start):
            start.wait()
            Store(path)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(open_it, range(8)))


def test_a_locked_store_is_not_damaged(tmp_path, monkeypatch):
    """Who opens it waits, and never says that it should be moved away."""
    path = tmp_path / "runs.sqlite"
    with sqlite3.connect(path, isolation_level=None, check_same_thread=False) as db:
        db.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(store_module, "PATIENCE", 0.2)
        with pytest.raises(ValueError, match=r"runs\.sqlite is locked by another process .*try again"):
            Store(path)
        monkeypatch.setattr(store_module, "PATIENCE", 60.0)
        threading.Timer(0.3, db.execute, ["COMMIT"]).start()
        Store(path).plan([job()])
    db.close()


def test_a_run_that_is_planned_anew_has_not_begun(store):
    store.plan([job(0), job(1)], [row(job(0)), row(job(1))])
    store.forget(names([job(0)]))
    found = store.progress(names([job(0), job(1)]))
    assert (found.runs, found.finished, found.over) == (2, 1, False)


def test_what_is_no_store_is_named(tmp_path):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(ValueError, match=r"runs\.sqlite is not a store of runs"):
        Store(path)
