"""Snapshots of jobs in threads: when they are taken, what they hold, and that a new incarnation goes on from them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from distributed.protocol import dumps, loads

from singa_dask.conf import JobConf
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.snapshots import SnapshotStore
from singa_dask.runtime.units import checkpointing, snapshot_schedule
from singa_dask.runtime.units.unit_host import UnitHost
from tests.runtime import parts
from tests.runtime.end_to_end.test_partition import PLACES, placed
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, HYBRID, SANDBLASTER_2, SINGLE, Outcome, mlp
from tests.runtime.units.test_ends import MANY, states, stop_at, warnings, with_trap
from tests.selection import circles

Run = Callable[..., Outcome]
FREQ = {"snapshot_freq": 4}
NEVER = {"snapshot_freq": 10 * MANY}
ADAM = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.01}}
TWO = {"nworkers_per_group": 2, "nservers_per_group": 2}
CLUSTERS = {"single": SINGLE, "allreduce": ALLREDUCE, "sandblaster": SANDBLASTER_2}


class Kept:
    """A store for all processes of a job."""

    def __init__(self) -> None:
        self.store = SnapshotStore()

    def keep(self, step: int, file: str, content: bytes, known: int) -> list[str]:
        self.store.put("job", file, step, content, known)
        return ["here"]

    def read(self, file: str) -> bytes | None:
        return self.store.get("job", file)


def snapshots(outcome: Outcome) -> list[dict[str, Any]]:
    return [event for event in outcome.events if event["event"] == "snapshot"]


def steps(outcome: Outcome) -> list[int]:
    return [event["step"] for event in snapshots(outcome)]


def go_on(run_job: Run, job: JobConf, kept: Kept, event: dict[str, Any]) -> Outcome:
    """Run a job from one of its snapshots to the end, in its next incarnation."""
    manifest = loads(dumps(event["manifest"]))  # it comes through the scheduler
    resumed = Checkpoint.from_manifest(manifest, kept.read, f"snapshot of step {event['step']}")
    outcome = run_job(job, resumed, store_part=Kept().keep, incarnation=1)
    assert set(states(outcome).values()) == {"done"}, outcome.reports
    return outcome


def equal(one: Outcome, other: Outcome) -> None:
    params, wanted = one.params(), other.params()
    assert params.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(params[name], values)


# -- a new incarnation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("updater", circles(["Adam", "momentum"]))
@pytest.mark.parametrize("name", circles(CLUSTERS, long=2))
def test_a_new_incarnation_from_a_snapshot_is_the_same_run(run_job: Run, name: str, updater: str) -> None:
    changes = {"updater": ADAM} if updater == "Adam" else {}
    kept, job = Kept(), mlp(train_steps=14, cluster={**CLUSTERS[name], **FREQ}, **changes)
    outcome = run_job(job, store_part=kept.keep)
    assert steps(outcome) == [4, 8, 12]
    calm = run_job(job)
    assert snapshots(calm) == []
    equal(outcome, calm)
    assert outcome.losses() == calm.losses()
    for event in snapshots(outcome)[1:]:  # the first one is no longer kept
        rest = go_on(run_job, job, kept, event)
        equal(rest, calm)
        assert rest.losses() == {step: loss for step, loss in calm.losses().items() if step >= event["step"]}


@pytest.mark.long
@pytest.mark.parametrize("name", circles(["pipeline", "elsewhere", "hybrid"], plain=2))
def test_so_is_that_of_a_partitioned_net(run_job: Run, name: str) -> None:
    kept, job = Kept(), placed(PLACES[name], {**TWO, **FREQ}, train_steps=14)
    outcome = run_job(job, store_part=kept.keep)
    assert steps(outcome) == [4, 8, 12]
    for event in snapshots(outcome)[1:]:
        equal(go_on(run_job, job, kept, event), outcome)


@pytest.mark.parametrize("cluster", circles([DOWNPOUR, HYBRID], long=1), ids=["downpour", "hybrid"])
def test_groups_go_on_each_at_its_own_step(run_job: Run, cluster: dict[str, Any]) -> None:
    kept, job = Kept(), mlp(train_steps=14, cluster={**cluster, **FREQ})
    outcome = run_job(job, store_part=kept.keep)
    assert steps(outcome) == [4, 8, 12]
    event = snapshots(outcome)[-1]
    groups = event["manifest"]["groups"]
    assert groups["0"]["step"] == 12 and 0 <= groups["1"]["step"] <= 14
    rest = go_on(run_job, job, kept, event)
    for group in (0, 1):
        assert set(rest.losses(group=group)) == set(range(groups[str(group)]["step"], 14))


@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1), ids=["single", "allreduce"])
def test_layers_go_on_with_what_they_keep_from_batch_to_batch(run_job: Run, cluster: dict[str, Any]) -> None:
    layers = mlp().model_dump(exclude_unset=True)["neuralnet"]["layer"]
    layers[2] = {"name": "act1", "type": parts.Remembers.__name__, "srclayers": ["fc1"]}
    kept, job = Kept(), mlp(train_steps=10, neuralnet={"layer": layers}, cluster={**cluster, **FREQ})
    outcome = run_job(job, store_part=kept.keep)
    for event in snapshots(outcome):
        n_workers = cluster.get("nworkers_per_group", 1)
        assert [each["worker"] for each in event["manifest"]["states"]] == list(range(n_workers))
        equal(go_on(run_job, job, kept, event), outcome)


def test_manifests_name_the_incarnation_and_the_holders(run_job: Run) -> None:
    kept, job = Kept(), mlp(train_steps=6, cluster={**ALLREDUCE, **FREQ})
    (event,) = snapshots(run_job(job, store_part=kept.keep, incarnation=3))
    assert (event["step"], event["manifest"]["step"]) == (4, 4)
    found = sorted(event["manifest"]["parts"], key=lambda part: str(part["file"]))
    assert [part["file"] for part in found] == [f"step-4/part-{i}-of-2.life-3.safetensors" for i in range(2)]
    assert [part["file"] for part in found] == sorted(kept.store.jobs["job"])
    assert all(part["holders"] == ["here"] for part in found)
    assert sum(part["bytes"] for part in found) == sum(len(part.content) for part in kept.store.jobs["job"].values())


# -- when they are taken -------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", circles([ALLREDUCE, SINGLE], long=1), ids=["allreduce", "single"])
def test_every_step_is_every_step_and_memory_is_bounded(run_job: Run, cluster: dict[str, Any]) -> None:
    kept = Kept()
    outcome = run_job(
        mlp(train_steps=9, checkpoint_freq=5, cluster={**cluster, "snapshot_freq": 1}), store_part=kept.keep
    )
    assert steps(outcome) == [1, 2, 3, 4, 6, 7, 8]  # there is a checkpoint of step 5
    found = snapshots(outcome)[-1]["manifest"]["parts"]
    assert len(sorted(kept.store.jobs["job"])) == 2 * len(found)


@pytest.mark.parametrize("how", [{"snapshot_freq": 0}, {}])
def test_a_job_can_be_without(run_job: Run, how: dict[str, int]) -> None:
    asked = False

    def ask(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        nonlocal asked
        asked = True
        hosts[0].request("snapshot")

    keep = Kept().keep if how else None
    assert steps(run_job(mlp(cluster=how), store_part=keep, on_event=ask)) == []
    assert asked


@pytest.mark.long
@pytest.mark.parametrize("name", ["allreduce", "pipeline"])
def test_the_group_agrees_on_the_step_of_one_that_is_chosen_by_time(
    run_job: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(snapshot_schedule, "MIN_S", 0.0)
    monkeypatch.setattr(snapshot_schedule, "SHARE", 1.0)
    kept = Kept()
    job = mlp(train_steps=MANY, cluster=ALLREDUCE)
    if name == "pipeline":
        job = placed(PLACES[name], TWO, train_steps=MANY)

    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "snapshot" and event["step"] > 10:
            for host in hosts:
                host.request("stop")

    outcome = run_job(job, store_part=kept.keep, on_event=watch)
    assert set(states(outcome).values()) == {"done"}
    event = snapshots(outcome)[-1]
    (end,) = {report["step"] for unit, report in outcome.reports.items() if unit.startswith("worker")}
    until_end = job.model_copy(update={"train_steps": end})
    equal(go_on(run_job, until_end, kept, event), outcome)


@pytest.mark.parametrize(
    "cluster", circles([ALLREDUCE, DOWNPOUR, SINGLE], long=2), ids=["allreduce", "downpour", "single"]
)
def test_one_that_is_asked_for_is_taken_as_soon_as_possible(run_job: Run, cluster: dict[str, Any]) -> None:
    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and (event["step"], event["group"], event["worker"]) == (5, 0, 0):
            for host in hosts:
                host.request("snapshot")
        if event["event"] == "snapshot":
            for host in hosts:
                host.request("stop")

    outcome = run_job(mlp(train_steps=MANY, cluster={**cluster, **NEVER}), store_part=Kept().keep, on_event=watch)
    assert steps(outcome) == [8 if cluster is ALLREDUCE else 6]


def test_one_that_is_asked_for_before_the_worker_is_there_is_not_forgotten(run_job: Run) -> None:
    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        if event == {"event": "unit", "unit": "server-0-0"}:
            for host in hosts:
                host.request("snapshot")

    # a server begins before any step, and before or after the worker
    assert steps(run_job(mlp(cluster=NEVER), store_part=Kept().keep, on_event=watch)) == [1]


# -- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", circles([SINGLE, SANDBLASTER_2], long=1), ids=["single", "sandblaster"])
def test_training_goes_on_without_one_that_cannot_be_kept(run_job: Run, cluster: dict[str, Any]) -> None:
    kept = Kept()

    def keep(step: int, file: str, content: bytes, known: int) -> list[str]:
        if step == 4:
            raise OSError("no memory is left")
        return kept.keep(step, file, content, known)

    job = mlp(cluster={**cluster, **FREQ})
    outcome = run_job(job, store_part=keep)
    assert set(states(outcome).values()) == {"done"}
    assert steps(outcome) == [8]
    (warning,) = warnings(outcome)
    assert warning.startswith("the snapshot of step 4 was dropped: server-0-")
    assert warning.endswith("OSError: no memory is left")
    equal(outcome, run_job(job))


@pytest.mark.parametrize("cluster", circles([SINGLE, ALLREDUCE], long=1), ids=["single", "allreduce"])
def test_no_other_is_taken_before_the_scheduler_has_it(
    run_job: Run, monkeypatch: pytest.MonkeyPatch, cluster: dict[str, Any]
) -> None:
    kept, never = Kept(), Future[None]()

    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> Future[None] | None:
        if event["event"] != "snapshot" or event["step"] != 3:
            return None
        monkeypatch.setattr(checkpointing, "PATIENCE_S", 0.0)
        return never

    outcome = run_job(mlp(train_steps=9, cluster={**cluster, "snapshot_freq": 1}), store_part=kept.keep, on_event=watch)
    assert steps(outcome) == [1, 2, 3]
    assert set(states(outcome).values()) == {"done"}
    assert {part.step for part in kept.store.jobs["job"].values()} >= {3}


def test_what_the_scheduler_has_stays(run_job: Run) -> None:
    """The scheduler cannot be told of snapshots after step 3."""
    kept = Kept()

    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> Future[None] | None:
        there = Future[None]()
        if event["event"] != "snapshot" or event["step"] <= 3:
            there.set_result(None)
        else:
            there.set_exception(OSError("the scheduler is gone"))
        return there

    outcome = run_job(
        mlp(train_steps=9, cluster={**ALLREDUCE, "snapshot_freq": 1}), store_part=kept.keep, on_event=watch
    )
    assert steps(outcome) == list(range(1, 9))
    assert sorted(part.step for part in kept.store.jobs["job"].values()) == [3, 3, 8, 8]


def test_nothing_waits_for_one_that_is_not_complete(run_job: Run) -> None:
    """A failure ends the job while a part is being kept."""
    released, begun = threading.Event(), threading.Event()

    def keep(step: int, file: str, content: bytes, known: int) -> list[str]:
        begun.set()
        released.wait()
        return []

    trap = with_trap(how="raise", step=6, group=0, worker=0)
    outcome = run_job(mlp(train_steps=MANY, neuralnet=trap, cluster={**ALLREDUCE, **FREQ}), store_part=keep)
    released.set()
    assert set(states(outcome).values()) == {"failed", "aborted"}
    assert steps(outcome) == []
    assert begun.is_set()


def test_the_end_comes_while_one_is_pending(run_job: Run) -> None:
    stopped = threading.Event()

    def keep(step: int, file: str, content: bytes, known: int) -> list[str]:
        stopped.wait()
        return []

    def watch(hosts: list[UnitHost], event: dict[str, Any]) -> None:
        stop_at(6)(hosts, event)
        if event["event"] == "metrics" and event["step"] == 6:
            stopped.set()

    outcome = run_job(mlp(train_steps=MANY, cluster={**ALLREDUCE, **FREQ}), store_part=keep, on_event=watch)
    assert set(states(outcome).values()) == {"done"}
    assert [event["step"] for event in outcome.events if event["event"] == "checkpoint"] == [9]
