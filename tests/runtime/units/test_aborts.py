"""An abort is heard wherever a unit is: in layers, tests, reads, waits for others, and while a part is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.inputs.record_source import RecordSource
from singa_dask.layers import LAYERS, Layer
from singa_dask.runtime.units import run_unit
from singa_dask.runtime.units.unit_host import UnitHost
from singa_dask.training import UPDATERS, Updater
from tests.conftest import OUR_THREADS
from tests.runtime.harness import ALLREDUCE, SANDBLASTER_1, SINGLE, TIMEOUT_S, dense, mlp, start_hosts
from tests.runtime.processes import wait_until
from tests.runtime.units.test_partition_ends import PLACES, PROCESSES
from tests.runtime.units.test_partition_ends import job as partitioned
from tests.selection import circles

MANY = 1_000_000
FAILURE = {"reason": "the job is over", "retry": True}


class Hold:
    """Holds a thread in a call until a test lets it go, as a call into a C library would."""

    def __init__(self) -> None:
        self.reached, self.leave = threading.Event(), threading.Event()
        self.n_calls = 0

    def __call__(self, *_: Any) -> None:
        self.n_calls += 1
        self.reached.set()
        assert self.leave.wait(TIMEOUT_S)


HOLD = Hold()


@pytest.fixture(autouse=True)
def hold() -> Iterator[Hold]:
    """Return a new hold, and let go of it at the end."""
    global HOLD
    HOLD = Hold()
    yield HOLD
    HOLD.leave.set()


@LAYERS.register()
class Held(Layer):
    """Is held in the phase that ``user_conf`` names."""

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def compute_feature(self, phase: Phase) -> None:
        if phase & Phase[self.conf.user_conf["phase"]]:
            HOLD()
        np.copyto(self.features[0].data, self.sources[0].data)

    def compute_gradient(self, phase: Phase) -> None:
        np.copyto(self.sources[0].grad, self.features[0].grad)


@UPDATERS.register()
class HeldUpdater(Updater):
    """Is held at each update."""

    def rule(self, w: Any, g: Any, lr: float, t: int, state: Any, tmp: Any, tmp2: Any) -> None:
        HOLD()


class Running:
    """A job in threads."""

    def __init__(self, job: JobConf, url: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.reports: dict[str, dict[str, Any]] = {}
        self.hosts = start_hosts(job, self.events.append, checkpoint_url=str(url / "checkpoint"))
        self._threads = [
            threading.Thread(target=self._run, args=(host, unit), daemon=True)
            for host in self.hosts
            for unit in host.local
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, host: UnitHost, address: Address) -> None:
        self.reports[str(address)] = run_unit.run_unit(host, address, None, ())

    def abort(self) -> dict[str, dict[str, Any]]:
        """Abort the job; return the reports of all units."""
        self.hosts[0].abort(FAILURE)
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), f"a unit hangs; reports so far: {self.reports}"
        return self.reports

    def close(self) -> None:
        for host in self.hosts:
            host.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[JobConf], Running]]:
    """Return a function that starts a job."""
    started: list[Running] = []

    def start(job: JobConf) -> Running:
        started.append(Running(job, tmp_path))
        return started[-1]

    yield start
    for running in started:
        running.abort()
        running.close()


def states(reports: dict[str, dict[str, Any]]) -> set[str]:
    return {report["state"] for report in reports.values()}


def held_net(phase: str, n: int = 1) -> dict[str, Any]:
    """Return the net of the small job with layers that are held one after the other."""
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"][:1]
    names = ["data", *(f"held{i}" for i in range(n))]
    for source, name in pairwise(names):
        layers.append({"name": name, "type": Held.__name__, "srclayers": [source], "user_conf": {"phase": phase}})
    loss = {"name": "loss", "type": "SoftmaxLoss", "srclayers": ["fc", "data"]}
    return {"layer": [*layers, dense("fc", names[-1], 10), loss]}


def test_no_layer_is_computed_after_an_abort(run: Any, hold: Hold) -> None:
    running = run(mlp(train_steps=MANY, neuralnet=held_net("TRAIN", 20)))
    assert hold.reached.wait(TIMEOUT_S)
    running.hosts[0].abort(FAILURE)
    hold.leave.set()
    reports = running.abort()
    assert states(reports) == {"aborted"}
    assert hold.n_calls == 1
    assert all(report["retry"] and report["reason"] == FAILURE["reason"] for report in reports.values())
    assert not any("left_behind" in report for report in reports.values())


def test_a_test_of_a_million_batches_ends(run: Any, hold: Hold) -> None:
    net = held_net("TEST")
    running = run(mlp(train_steps=MANY, test_freq=1, test_steps=MANY, neuralnet=net))
    assert hold.reached.wait(TIMEOUT_S)
    running.hosts[0].abort(FAILURE)
    hold.leave.set()
    assert states(running.abort()) == {"aborted"}
    assert hold.n_calls == 1


def test_a_layer_that_does_not_return_is_left_behind(run: Any, hold: Hold, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_unit, "LEAVE_S", 0.01)
    running = run(mlp(train_steps=MANY, neuralnet=held_net("TRAIN")))
    assert hold.reached.wait(TIMEOUT_S)
    # a cluster that other tests share keeps Dask quiet, and with it handlers of the root logger
    with caplog.at_level("WARNING", "singa_dask"):
        report = running.abort()["worker-0-0"]
    assert (report["state"], report["left_behind"]) == ("aborted", "a computation")
    assert "worker-0-0 is left behind in a call that does not return: a computation" in caplog.text


@pytest.mark.parametrize("cluster", [SINGLE, ALLREDUCE], ids=["single", "allreduce"])
def test_a_read_that_does_not_return_holds_no_unit(
    run: Any, hold: Hold, cluster: dict[str, Any], monkeypatch: Any
) -> None:
    monkeypatch.setattr(run_unit, "LEAVE_S", 0.01)
    real = ArrowStore.read_block

    def read_block(self: ArrowStore, block: int) -> Any:
        hold()
        return real(self, block)

    monkeypatch.setattr(ArrowStore, "read_block", read_block)
    running = run(mlp(train_steps=MANY, cluster=cluster))
    assert hold.reached.wait(TIMEOUT_S)
    wait_until(lambda: "records of layer data" in str(running.hosts[0].waits()), "the worker waits for records")
    reports = running.abort()
    assert states(reports) == {"aborted"}
    assert "the end of a read" in [report.get("left_behind") for report in reports.values()]


def test_opening_records_holds_no_unit(run: Any, hold: Hold, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_unit, "LEAVE_S", 0.01)
    real = RecordSource.open

    def open_store(self: RecordSource, *args: Any) -> Any:
        hold()
        return real(self, *args)

    monkeypatch.setattr(RecordSource, "open", open_store)
    running = run(mlp(train_steps=MANY))
    assert hold.reached.wait(TIMEOUT_S)
    (what, seconds) = running.hosts[0].waits()["worker-0-0"]
    assert what == "records of layer data: opens the store"
    assert seconds >= 0
    assert running.abort()["worker-0-0"]["left_behind"] == what


@pytest.mark.parametrize("steps", [1, MANY], ids=["last", "on the way"])
def test_an_upload_that_hangs_holds_nothing(run: Any, hold: Hold, monkeypatch: Any, steps: int) -> None:
    monkeypatch.setattr(run_unit, "write_part", hold)
    running = run(mlp(train_steps=steps, checkpoint_freq=1))
    assert hold.reached.wait(TIMEOUT_S)
    if steps < MANY:
        wait_until(lambda: "parts of checkpoints" in str(running.hosts[0].waits()), "the worker waits for the part")
    reports = running.abort()
    assert states(reports) == {"aborted"}
    assert not any("left_behind" in report for report in reports.values())
    running.close()  # waits for no upload


def test_a_wait_for_an_update_says_for_which(run: Any, hold: Hold) -> None:
    updater = {"type": HeldUpdater.__name__, "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    running = run(mlp(train_steps=MANY, updater=updater, cluster=SANDBLASTER_1))
    assert hold.reached.wait(TIMEOUT_S)

    def waits() -> list[str]:
        return [what for host in running.hosts for what, _ in host.waits().values()]

    wait_until(lambda: any(what.startswith("update of param fc") for what in waits()), "a worker waits for an update")
    running.hosts[0].abort(FAILURE)
    hold.leave.set()
    assert states(running.abort()) == {"aborted"}


def test_a_failure_is_the_first_one_and_says_whether_to_try_again(run: Any) -> None:
    running = run(mlp(train_steps=MANY, cluster=ALLREDUCE))
    running.hosts[1].abort(FAILURE)
    running.abort()
    for report in running.reports.values():
        assert (report["state"], report["retry"]) == ("aborted", True)


# -- at any moment -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", circles(range(100), long=4))
def test_a_job_that_is_aborted_at_any_moment_ends(run: Any, seed: int, monkeypatch: Any) -> None:
    random = np.random.default_rng(seed)
    places = list(PLACES.values())[seed % len(PLACES)]
    cluster = PROCESSES[1] if seed % 4 else PROCESSES[2]
    for _ in range(2):
        moment, counted, lock = int(random.integers(1, 400)), 0, threading.Lock()
        real, now = UnitHost.__init__, threading.Event()

        def count(*_: Any, moment: int = moment, now: threading.Event = now, lock: Any = lock) -> None:
            nonlocal counted
            with lock:
                counted += 1
            if counted >= moment:
                now.set()

        def counting(self: UnitHost, *args: Any, count: Any = count, real: Any = real, **given: Any) -> None:
            real(self, *args, **given)
            post = self.router.post

            def posted(message: Message) -> None:
                count()
                post(message)

            vars(self.router)["post"] = posted

        before = set(threading.enumerate())
        with monkeypatch.context() as patched:
            patched.setattr(UnitHost, "__init__", counting)
            running = run(partitioned(places, cluster, {"how": "nothing"}, train_steps=MANY, disp_freq=0))
        assert now.wait(TIMEOUT_S)
        reports = running.abort()
        running.close()
        assert states(reports) == {"aborted"}
        assert not any("left_behind" in report for report in reports.values())
        # threads that read or decode serve all jobs, and end when there is nothing to do for some seconds
        for thread in set(threading.enumerate()) - before:
            if thread.name.startswith(OUR_THREADS):
                thread.join(TIMEOUT_S)
                assert not thread.is_alive(), thread.name
