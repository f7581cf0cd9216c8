"""Workers that join a running job: the steps of their group, checkpoints and snapshots, barriers, the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints import lookup
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.units import checkpointing
from singa_dask.runtime.units.worker import Worker
from tests.runtime import parts
from tests.runtime.ahead import read_little_ahead
from tests.runtime.harness import TIMEOUT_S, mlp
from tests.runtime.replacing import Running
from tests.runtime.units.test_ends import MANY
from tests.selection import circles

N_STEPS = 24
PAUSE = 14
# no snapshot by time: each waits for the group that pauses
APART = {"nworker_groups": 2, "server_worker_separate": True, "snapshot_freq": 0}
TWO_WORKERS = {**APART, "nworkers_per_group": 2}
WIDE = {**TWO_WORKERS, "nworkers_per_procs": 2}


class Paused(Running):
    """A job whose workers pause after a step, until it goes on."""

    def __init__(self, job: JobConf, url: Path, pauses: dict[int, int]) -> None:
        super().__init__(job, str(url))
        self.pauses = pauses
        self._n_workers = job.cluster.nworkers_per_group
        self.events: list[dict[str, Any]] = []
        self.paused = Counter[int]()  # workers of each group
        self.goes_on = {group: threading.Event() for group in pauses}

    def __exit__(self, *_: object) -> None:
        for event in self.goes_on.values():
            event.set()
        super().__exit__()

    def _emit(self, event: dict[str, Any]) -> None:
        super()._emit(event)
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        if event["event"] != "metrics" or event["phase"] != "train":
            return
        group = event["group"]
        if event["step"] == self.pauses.get(group, -1) and not self.goes_on[group].is_set():
            with self._changed:
                self.paused[group] += 1
                self._changed.notify_all()
            assert self.goes_on[group].wait(TIMEOUT_S)

    def wait_for(self, event: str, **facts: Any) -> None:
        """Wait until there is an event with some facts."""
        with self._changed:
            self._wait(lambda: any(each["event"] == event and facts.items() <= each.items() for each in self.events))

    def wait_for_pauses(self, groups: Collection[int]) -> None:
        with self._changed:
            self._wait(lambda: all(self.paused[group] == self._n_workers for group in groups))

    def let_go_on(self) -> None:
        for event in self.goes_on.values():
            event.set()

    def processes_of(self, group: int) -> list[int]:
        """Return the processes of the workers of a group."""
        workers = [each for each in self.layout.units if (each.kind, each.group) == ("worker", group)]
        return sorted({self.layout.process_of[worker] for worker in workers})

    def end(self) -> None:
        """Wait until all units are done."""
        self.let_go_on()
        for address, thread in self._threads.items():
            thread.join(TIMEOUT_S)
            assert not thread.is_alive(), f"{address} hangs; {self.waits()}; reports so far: {self.reports}"
        states = {str(unit): report["state"] for unit, report in self.reports.items()}
        assert states == dict.fromkeys(map(str, self.layout.units), "done"), self.reports

    def shown(self, group: int) -> list[int]:
        """Return the steps that the workers of a group have shown, in the order in which they did."""
        shown = [event for event in self.events if event["event"] == "metrics" and event["phase"] == "train"]
        return [event["step"] for event in shown if event["group"] == group]

    def snapshots(self) -> list[int]:
        """Return the steps of the snapshots."""
        return [event["step"] for event in self.events if event["event"] == "snapshot"]

    def last_checkpoint(self) -> Checkpoint:
        return Checkpoint(str(lookup.find(self.url)))


@pytest.fixture(autouse=True)
def little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    read_little_ahead(monkeypatch.setattr)


@pytest.mark.parametrize("cluster", circles([APART, TWO_WORKERS, WIDE], long=2), ids=["one", "two", "wide"])
@pytest.mark.parametrize("group", circles([0, 1]))
def test_a_group_goes_on_at_its_step_and_the_other_one_without_a_break(
    tmp_path: Path, cluster: dict[str, Any], group: int
) -> None:
    job = mlp(train_steps=N_STEPS, checkpoint_freq=10, cluster={**cluster, "snapshot_freq": 4})
    with Paused(job, tmp_path, {group: PAUSE}) as running:
        running.wait_for("metrics", step=8, group=group)
        steps = running.replace(running.processes_of(group))
        running.end()
    n_workers = cluster.get("nworkers_per_group", 1)
    assert sorted(running.shown(1 - group)) == sorted(n_workers * list(range(N_STEPS)))
    shown = running.shown(group)
    assert 8 <= steps[group] <= PAUSE + 2
    assert shown.count(N_STEPS - 1) == n_workers
    assert set(shown) >= set(range(steps[group], N_STEPS))
    # after the loss snapshots are taken as before it
    assert 16 in running.snapshots()
    found = running.last_checkpoint()
    assert found.step == N_STEPS
    assert found.groups.keys() == {0, 1}
    cursor = found.groups[group]["cursors"]["train"]["data"]
    assert cursor["samples_seen"] == found.groups[group]["step"] * cursor["batch_size"]


@pytest.mark.parametrize("cluster", circles([APART, WIDE], long=1), ids=["one", "wide"])
def test_a_snapshot_of_which_a_report_is_lost_is_complete_after_the_group_has_started_anew(
    tmp_path: Path, cluster: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpointing, "PATIENCE_S", TIMEOUT_S)  # the first group waits for the snapshot of step 12
    job = mlp(train_steps=N_STEPS, cluster={**cluster, "snapshot_freq": 12})
    with Paused(job, tmp_path, {0: 10, 1: 6}) as running:
        running.wait_for_pauses([0, 1])
        running.goes_on[0].set()
        running.wait_for("metrics", step=11, group=0)
        running.pauses[1] = -1  # the group has not answered for step 12
        assert running.snapshots() == []
        running.replace(running.processes_of(1))
        running.let_go_on()
        running.end()
    assert running.snapshots() == [12]
    assert running.last_checkpoint().step == N_STEPS


@pytest.mark.long
@pytest.mark.parametrize("is_taken", [False, True])
def test_layer_states_go_on_only_at_the_step_of_the_snapshot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_taken: bool
) -> None:
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    layers[2] = {"name": "act1", "type": parts.Remembers.__name__, "srclayers": ["fc1"]}
    cluster = {**APART, "snapshot_freq": 10 * MANY}
    job = mlp(train_steps=MANY, neuralnet={"layer": layers}, cluster=cluster)
    with Paused(job, tmp_path, {}) as running:
        if is_taken:
            running.wait_for_steps(1)
            running.hosts[0].request("snapshot")
            running.wait_for("snapshot")
        running.wait_for_steps(4)
        with caplog.at_level("WARNING", "singa_dask"):
            running.replace([1])
            running.wait_for_steps(1)
            running.stop()
            running.end()
    told = [record.getMessage() for record in caplog.records if "are reset" in record.getMessage()]
    expected = "worker group 1 was at step"
    assert [expected in each for each in told] == ([True] if is_taken else [])


@pytest.mark.long
def test_the_last_checkpoint_is_complete_although_a_group_is_lost_meanwhile(tmp_path: Path) -> None:
    job = mlp(train_steps=N_STEPS, cluster=APART)
    with Paused(job, tmp_path, {1: 6}) as running:
        running.wait_for_pauses([1])
        running.wait_for("metrics", step=N_STEPS - 1, group=0)
        running.pauses[1] = -1
        running.replace(running.processes_of(1))
        running.end()
    found = running.last_checkpoint()
    assert {group: facts["step"] for group, facts in found.groups.items()} == {0: N_STEPS, 1: N_STEPS}


def test_a_worker_that_waits_for_a_lost_coordinator_asks_the_next_one(tmp_path: Path) -> None:
    """The first process is lost after it has counted some units, and before all are there."""
    job = mlp(train_steps=4, cluster=APART)
    with Paused(job, tmp_path, {0: 2, 1: 2}) as running:
        running.wait_for_pauses([0, 1])
        worker = running.hosts[1].units[Address.worker(1, 0)]
        assert isinstance(worker, Worker)
        # as if its answer had been lost
        worker._said = Message("ready", worker.address, Address.stub(0), info={"host": "", "facts": {}})
        running.replace([0])
        running.end()


@pytest.mark.long
def test_a_group_that_is_done_and_lost_is_not_waited_for(tmp_path: Path) -> None:
    job = mlp(train_steps=N_STEPS, cluster=APART)
    with Paused(job, tmp_path, {0: PAUSE}) as running:
        running.wait_for_pauses([0])
        running._threads[Address.worker(1, 0)].join(TIMEOUT_S)
        running.hosts[1].close()
        for host in (running.hosts[0], running.hosts[2]):
            host.router.join({}, [Address.worker(1, 0)])
        running.end()
    assert running.last_checkpoint().groups[1] == {"step": N_STEPS, "cursors": {}}


@pytest.mark.long
def test_messages_to_a_worker_that_is_not_there_yet_wait_for_it(tmp_path: Path) -> None:
    job = mlp(train_steps=N_STEPS, cluster=APART)
    with Paused(job, tmp_path, {0: PAUSE, 1: PAUSE}) as running:
        running.wait_for_pauses([0, 1])
        start = running._start
        end = Message("end", Address.worker(0, 0), Address.worker(1, 0), info={"reason": "it is good"})

        def start_late(host: Any, resume: Any) -> None:
            running.hosts[0].router.post(end)
            host.router.receive(end)
            start(host, resume)

        running._start = start_late  # type: ignore[method-assign]
        steps = running.replace([1])
        running.end()
    assert running.reports[Address.worker(1, 0)]["ended"] == "it is good"
    assert running.reports[Address.worker(1, 0)]["steps"] == steps[1] + 1


@pytest.mark.long
def test_a_worker_that_has_left_says_so_to_the_next_coordinator(tmp_path: Path) -> None:
    job = mlp(train_steps=N_STEPS, cluster=APART)
    with Paused(job, tmp_path, {0: PAUSE}) as running:
        running.wait_for_pauses([0])
        running._threads[Address.worker(1, 0)].join(TIMEOUT_S)
        running.replace([0])
        running.end()
    assert running.last_checkpoint().groups[1]["step"] == N_STEPS


@pytest.mark.long
@pytest.mark.parametrize("group", circles([0, 1]))
def test_a_group_that_is_lost_after_its_last_step_only_ends(tmp_path: Path, group: int) -> None:
    job = mlp(train_steps=N_STEPS, cluster={**TWO_WORKERS, "snapshot_freq": 10 * MANY})
    with Paused(job, tmp_path, {0: N_STEPS - 1, 1: N_STEPS - 1}) as running:
        running.wait_for_pauses([0, 1])
        steps = running.replace(running.processes_of(group))
        running.end()
    assert N_STEPS - 1 <= steps[group] <= N_STEPS
    found = running.last_checkpoint()
    assert {number: facts["step"] for number, facts in found.groups.items()} == {0: N_STEPS, 1: N_STEPS}


@pytest.mark.long
@pytest.mark.parametrize("seed", circles(range(12)))
def test_a_job_survives_many_losses(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    cluster = random.choice([{**APART, "nworker_groups": 3}, TWO_WORKERS, {**WIDE, "nservers_per_group": 2}])
    tests: dict[str, Any] = {"test_freq": 30, "test_steps": 2}
    job = mlp(train_steps=MANY, checkpoint_freq=50, cluster={**cluster, "snapshot_freq": 20}, **tests)
    with Paused(job, tmp_path, {}) as running:
        running.wait_for("snapshot", step=20)
        for _ in range(6):
            running.wait_for_steps(random.randint(1, 25))
            groups = random.sample(range(job.cluster.nworker_groups), random.choice([1, 1, 2]))
            lost = {process for group in groups for process in running.processes_of(group)}
            running.replace(sorted(lost))
        for host in running.hosts:
            host.request("stop")
        running.end()
    assert running.last_checkpoint().groups.keys() == set(range(job.cluster.nworker_groups))
