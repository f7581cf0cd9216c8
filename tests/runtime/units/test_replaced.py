"""Jobs of several worker groups some processes of which are lost: they start again, and the others go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.comm.message import Address
from singa_dask.runtime.units.worker import Worker
from tests.runtime.ahead import read_little_ahead
from tests.runtime.harness import mlp
from tests.runtime.processes import wait_until
from tests.runtime.replacing import Running, count_updates
from tests.runtime.units.test_ends import MANY
from tests.selection import circles

DOWNPOUR_3 = {"nworker_groups": 3}
SERVERS_APART = {"nworker_groups": 2, "nservers_per_group": 2, "server_worker_separate": True}
TWO_WORKERS = {"nworker_groups": 2, "nworkers_per_group": 2}
TWO_IN_A_PROCESS = {"nworker_groups": 4, "nworkers_per_procs": 2, "server_worker_separate": True}
HYBRID = {
    "nworker_groups": 2, "nworkers_per_group": 2, "nserver_groups": 2, "nservers_per_group": 2, "sync_freq": 3,
    "nworkers_per_procs": 2, "nservers_per_procs": 2, "server_worker_separate": True,
}  # fmt: skip
# converges with any number of groups
STEADY = {"type": "SGD", "momentum": 0.5, "learning_rate": {"type": "Fixed", "base_lr": 0.02}}
N_STEPS = 5
# processes that are lost, whether there is a snapshot, and steps before the loss: all pairs of values
LOSSES = [([1, 2], True, 4), ([1], True, 0), ([1], False, 4), ([1, 2], False, 0)]


@pytest.fixture(autouse=True)
def little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    read_little_ahead(monkeypatch.setattr)


def lose(url: Path, cluster: dict[str, Any], lost: Sequence[int], n_before: int, snapshot: bool = True) -> list[int]:
    """Lose processes after some steps of every group, and stop the job some steps later; return the last steps."""
    freq = 3 if snapshot else 10 * MANY
    job = mlp(train_steps=MANY, cluster={**cluster, "snapshot_freq": freq}, updater=STEADY)
    with Running(job, str(url)) as running:
        if snapshot:
            running.wait_for_snapshot()
        running.wait_for_steps(n_before)
        running.replace(lost)
        running.wait_for_steps(N_STEPS)
        running.stop()
    states = {str(unit): report["state"] for unit, report in running.reports.items()}
    assert states == dict.fromkeys(map(str, running.layout.units), "done"), running.reports
    for losses in running.losses.values():
        assert np.isfinite(losses).all()
        assert np.mean(losses[-3:]) < losses[0]
    steps = {unit.group: report["step"] for unit, report in running.reports.items() if unit.kind == "worker"}
    return [steps[group] for group in range(len(steps))]


@pytest.mark.parametrize(("lost", "snapshot", "n_before"), circles(LOSSES, long=3))
def test_of_a_lost_worker_no_update_is_lost_or_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[int], snapshot: bool, n_before: int
) -> None:
    counted = count_updates(monkeypatch)
    last = lose(tmp_path, DOWNPOUR_3, lost, n_before, snapshot)
    (applied,) = counted.values()
    assert {group for _, group in applied} == {0, 1, 2}
    for (_, group), steps in applied.items():
        assert steps == list(range(last[group]))


@pytest.mark.long
@pytest.mark.parametrize("n_before", [4, 0])
def test_so_it_is_of_a_lost_group_of_several_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_before: int
) -> None:
    counted = count_updates(monkeypatch)
    last = lose(tmp_path, TWO_WORKERS, [2, 3], n_before)
    (applied,) = counted.values()
    for (_, group), steps in applied.items():
        assert steps == list(range(last[group]))


def test_an_update_of_a_lost_worker_that_only_one_of_two_servers_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = count_updates(monkeypatch)
    with Running(mlp(train_steps=MANY, cluster=SERVERS_APART), str(tmp_path)) as running:
        running.wait_for_steps(2)
        has, lacks = (running.server(Address.server(0, i)) for i in range(2))
        lost = running.cut(1, 3, monkeypatch)
        running.wait_until(lambda: bool(lost) and has.applied(1) != lacks.applied(1))
        assert running.replace([1]) == {1: has.applied(1)}
        running.wait_for_steps(N_STEPS)
        running.stop()
    assert has.duplicates > 0
    assert lacks.duplicates == 0
    for applied in counted.values():
        for (_, group), steps in applied.items():
            assert steps == list(range(running.reports[Address.worker(group, 0)]["step"]))


@pytest.mark.long
def test_a_worker_that_is_lost_after_its_last_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = count_updates(monkeypatch)

    def hold_up_group_2(running: Running, event: dict[str, Any]) -> None:
        if event["event"] == "metrics" and (event["group"], event["step"]) == (2, 1):
            running.cut(2, 0, monkeypatch)

    with Running(mlp(train_steps=6, cluster=DOWNPOUR_3), str(tmp_path), hold_up_group_2) as running:
        running.wait_until(lambda: Address.worker(1, 0) in running.reports)
        steps = running.replace([1, 2])
        assert steps[1] == 6 > steps[2]
        running.wait_for_the_end()
    assert {report["state"] for report in running.reports.values()} == {"done"}
    (applied,) = counted.values()
    assert all(each == list(range(6)) for each in applied.values())


@pytest.mark.long
@pytest.mark.parametrize("lost", [[2], [1, 2]], ids=str)
def test_workers_that_are_lost_after_they_reported_for_a_snapshot_report_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[int]
) -> None:
    counted, events = count_updates(monkeypatch), list[dict[str, Any]]()
    job = mlp(train_steps=MANY, cluster={**DOWNPOUR_3, "snapshot_freq": 3}, updater=STEADY)
    with Running(job, str(tmp_path), lambda _, event: events.append(event)) as running:
        arrivals = running.cut(lost[0], 0, monkeypatch, "arrived")
        running.wait_until(lambda: bool(arrivals))
        first = running.hosts[0].units[Address.worker(0, 0)]
        assert isinstance(first, Worker)
        (pending,) = first._checkpointing._pending["snapshot"]._requests.values()
        wait_until(lambda: pending.reports.keys() >= {Address.worker(group, 0) for group in lost}, "they reported")
        running.replace(lost)
        running.wait_for_snapshot()
        running.stop()
    assert not [event for event in events if event["event"] == "log"]
    (applied,) = counted.values()
    for (_, group), steps in applied.items():
        assert steps == list(range(running.reports[Address.worker(group, 0)]["step"]))


@pytest.mark.long
@pytest.mark.parametrize(
    ("lost", "share_memory"), circles([([0], True), ([1], False), ([0], False), ([1], True)], plain=2)
)
def test_several_groups_in_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[int], share_memory: bool
) -> None:
    counted = count_updates(monkeypatch)
    last = lose(tmp_path, {**TWO_IN_A_PROCESS, "share_memory": share_memory}, lost, 2)
    (applied,) = counted.values()
    for (_, group), steps in applied.items():
        assert steps == list(range(last[group]))


@pytest.mark.long
@pytest.mark.parametrize(("lost", "n_before"), circles([([0], 4), ([1], 0), ([0], 0), ([1], 4)], plain=2))
def test_workers_whose_server_groups_exchange_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: list[int], n_before: int
) -> None:
    counted = count_updates(monkeypatch)
    last = lose(tmp_path, HYBRID, lost, n_before)
    assert len(counted) == 4
    for applied in counted.values():
        for (_, group), steps in applied.items():
            assert steps == list(range(last[group]))
