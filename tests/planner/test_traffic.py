"""Bytes and messages of simulated steps are those that the transports of a real job count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from singa_dask.comm.message import Message
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.planner.simulation import simulate
from singa_dask.runtime.planning.job_plan import JobPlan
from tests.planner.clusters import FixedCosts, cluster_of
from tests.runtime import harness
from tests.runtime.end_to_end.test_rbm import rbm, records
from tests.runtime.harness import ALLREDUCE, DOWNPOUR, Outcome, mlp, run_job

__all__ = ["run_job"]


class Counted(Transport):
    """A transport that counts messages."""

    n_sent = 0
    process: int
    all: ClassVar[list[Counted]] = []

    def __init__(self, *args: Any, process: int, **options: Any) -> None:
        self.process = process
        self.all.append(self)
        super().__init__(*args, process=process, **options)

    def send(self, address: str, message: Message) -> None:
        self.n_sent += 1
        super().send(address, message)


PIPELINE = [{"location": 0}, {"location": 0}, {"location": 0}, {"location": 1}, {"location": 1}, {"location": 1}]
ELSEWHERE = [{"location": 1}, {}, {"partition_dim": 1}, {}, {"location": 1}, {"location": 0}]
CLIPPED = {"type": "SGD", "clip_norm": 1.0, "learning_rate": {"type": "Fixed", "base_lr": 0.05}}
PERSISTENT = {"alg": "CD", "cd_conf": {"persistent": True}}
APART = {"server_worker_separate": True, "nservers_per_procs": 2}
JOBS: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "allreduce": (ALLREDUCE, [], {}),
    "sandblaster": ({"nworkers_per_group": 2, "nservers_per_group": 2, **APART}, [], {}),
    "downpour": (DOWNPOUR, [], {}),
    "clipped": (ALLREDUCE, [], {"updater": CLIPPED}),
    "features": (ALLREDUCE, [{"partition_dim": 1}] * 6, {}),
    "whole": (ALLREDUCE, [{"partition_dim": -1}] * 6, {}),
    "pipeline": (ALLREDUCE, PIPELINE, {}),
    "elsewhere": (ALLREDUCE, ELSEWHERE, {}),
    "direct": ({"nworkers_per_group": 4, "nservers_per_group": 3}, [], {}),
    "rbm": (ALLREDUCE, [], {"neuralnet": {"layer": [records(), *rbm(1, "data", 16)]}, "train_one_batch": PERSISTENT}),
    "two-in-a-process": ({"nworkers_per_group": 4, "nservers_per_group": 2, "nworkers_per_procs": 2}, [], {}),
    "tree": ({"nworkers_per_group": 6, "nservers_per_group": 6}, [], {}),
    "tree-apart": ({"nworkers_per_group": 12, "nservers_per_group": 2, **APART}, [], {}),
}
# those of the most processes, and one that is like `features`
MARKED = {
    "tree-apart": pytest.mark.soak,
    **dict.fromkeys(("direct", "elsewhere", "two-in-a-process", "tree"), pytest.mark.long),
}


def job_of(name: str, n_steps: int) -> JobConf:
    cluster, where, more = JOBS[name]
    raw = mlp(train_steps=n_steps, cluster=cluster, **more).model_dump(mode="json", exclude_unset=True)
    for layer, place in zip(raw["neuralnet"]["layer"], where, strict=False):
        layer.update(place)
    return JobConf.model_validate(raw)


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKED[name]) if name in MARKED else name for name in JOBS])
def test_steps_send_what_a_job_sends(
    name: str, run_job: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "Transport", Counted)
    counts = []
    for n_steps in (3, 7):
        monkeypatch.setattr(Counted, "all", [])
        outcome = run_job(job_of(name, n_steps))
        assert {report["state"] for report in outcome.reports.values()} == {"done"}
        transports = sorted(Counted.all, key=lambda each: each.process)
        counts.append([(each.sent_bytes, each.n_sent) for each in transports])
    a_step = np.subtract(counts[1], counts[0]) / 4
    job = job_of(name, 7)
    plan = JobPlan.make(job)
    predicted = simulate(job, plan, cluster_of(len(plan.layout.processes)), FixedCosts(), n_steps=4)
    assert predicted.bytes_sent == tuple(a_step[:, 0])
    if name != "two-in-a-process":  # there it depends on who flushes first how many messages it takes
        assert predicted.messages_sent == tuple(a_step[:, 1])
