"""Synchronous jobs have the same bits on any number of processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from singa_dask.conf import JobConf
from singa_dask.runtime import plan_processes
from singa_dask.runtime.planning.layout import Layout, pack
from tests.runtime.end_to_end import test_partition, test_rbm, test_statistics, test_text
from tests.runtime.harness import Outcome, mlp
from tests.selection import circles

RunJob = Callable[..., Outcome]

EIGHT = {"nworkers_per_group": 8, "nservers_per_group": 3}
FOUR = {"nworkers_per_group": 4, "nservers_per_group": 2}
ADAM = {"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.01}}
RBM = [test_rbm.records(), *test_rbm.rbm(1, "data", 20)]
TESTS = {"test_freq": 3, "test_steps": 2, "train_steps": 6}

JOBS: dict[str, Callable[..., JobConf]] = {
    "mlp": lambda cluster: mlp(cluster={**EIGHT, **cluster}, **TESTS),
    "adam": lambda cluster: mlp(cluster={**EIGHT, **cluster}, updater=ADAM, **TESTS),
    "statistics": lambda cluster: test_statistics.net(cluster={**FOUR, **cluster}, updater=ADAM, train_steps=4),
    "gru": lambda cluster: test_text.job({**EIGHT, **cluster}, updater=ADAM),
    "rbm": lambda cluster: test_rbm.job(RBM, {"persistent": True}, cluster={**FOUR, **cluster}),
    "hybrid": lambda cluster: test_partition.placed(test_partition.PLACES["hybrid"], {**EIGHT, **cluster}),
    "elsewhere": lambda cluster: test_partition.placed(test_partition.PLACES["elsewhere"], {**FOUR, **cluster}),
}


def measured(outcome: Outcome) -> dict[tuple[int, str, int], dict[str, Any]]:
    """Return the metrics of each worker, phase and step."""
    events = [event for event in outcome.events if event["event"] == "metrics"]
    return {(event["worker"], event["phase"], event["step"]): event["metrics"] for event in events}


def bits(outcome: Outcome) -> dict[str, bytes]:
    return {name: values.tobytes() for name, values in outcome.params().items()}


def mixed(layout: Layout) -> Layout:
    """Return a layout of two processes in which workers of both come between each other."""
    units = sorted(layout.units, key=lambda unit: unit.kind == "server")
    return Layout((tuple(units[::2]), tuple(units[1::2])), layout.cluster)


@pytest.mark.long
@pytest.mark.parametrize("name", circles(["mlp", "elsewhere", "adam", "statistics", "gru", "rbm", "hybrid"]))
def test_a_packed_job_has_the_same_bits(run_job: RunJob, name: str) -> None:
    job = JOBS[name]({})
    layout = plan_processes(job.cluster)
    n = layout.cluster.nworkers_per_group
    one = run_job(job)
    assert all(report["state"] == "done" for report in one.reports.values())
    others = [run_job(job, layout=packed) for packed in (*(pack(layout, k) for k in (1, 2, 3, 4)), mixed(layout))]
    others.append(run_job(JOBS[name]({"nworkers_per_procs": n, "nservers_per_procs": n})))
    for other in others:
        assert bits(other) == bits(one)
        assert measured(other) == measured(one)
