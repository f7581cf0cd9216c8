"""What the reports of workers add up to."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

from singa_dask.conf import ClusterConf
from singa_dask.runtime import plan_processes
from singa_dask.runtime.job.driver.result import summarise
from singa_dask.runtime.job.scheduler.group_metrics import MetricsMerger
from tests.runtime.harness import last_event


def test_metrics_of_a_group_do_not_depend_on_who_reports_first() -> None:
    sums = [1e8, 0.1, 0.2, -1e8]
    events: list[dict[str, Any]] = [
        {"event": "metrics", "phase": "train", "group": 0, "worker": i, "step": 3, "metrics": {"loss": [total, 2.0]}}
        for i, total in enumerate(sums)
    ]
    losses = set()
    for order in permutations(events):
        merger = MetricsMerger(len(events))
        *none, merged = [merger.add(event) for event in order]
        assert none == [None] * 3
        assert merged is not None
        losses.add(merged["metrics"]["loss"])
    assert len(losses) == 1


def test_late_metrics_of_a_group_that_has_restarted_hold_up_nothing() -> None:
    merger = MetricsMerger(2)
    event: dict[str, Any] = {"event": "metrics", "phase": "train", "group": 0, "step": 3, "metrics": {"loss": [2, 1]}}
    assert merger.add({**event, "worker": 0, "incarnation": 1}) is None
    assert merger.add({**event, "worker": 1, "incarnation": 0, "metrics": {"loss": [100, 1]}}) is None
    merged = merger.add({**event, "worker": 1, "incarnation": 1})
    assert merged is not None
    assert merged["metrics"] == {"loss": 2.0}


def test_the_staleness_of_all_servers_is_in_order() -> None:
    one = {"applied": 5, "refused": 0, "staleness": {"0": 2, "more": 1, "10": 2}, "staleness_sum": 120}
    two = {"applied": 4, "refused": 2, "staleness": {"9": 1, "0": 2}, "staleness_sum": 9}
    layout = plan_processes(ClusterConf())
    reports = {f"server-0-{i}": {"unit": f"server-0-{i}", "updates": each} for i, each in enumerate((one, two))}
    result = summarise("mlp", "mlp-1", layout, last_event(layout, reports))
    assert result.updates == {"applied": 9, "refused": 2}
    assert list(result.staleness.items()) == [("0", 4), ("9", 1), ("10", 2), ("more", 1)]
    assert result.staleness_mean == 16.125


def test_a_layer_counts_with_the_worker_that_takes_longest() -> None:
    layout = plan_processes(ClusterConf(nworkers_per_group=2))
    facts: dict[str, Any] = {
        **dict.fromkeys(("seconds", "samples", "threads"), 1),
        "stopped": False,
        "ops": "numpy",
        "device": "cpu",
        "read": {"local": 0, "remote": 0},
        "step_ms": {"median": 1, "p95": 1},
        "wait_ms": {"data": 0, "params": 0, "cores": 0},
    }
    tables = (
        {"fc1": {"forward_ms": 2.0, "backward_ms": 1.0}},
        {"fc1": {"forward_ms": 1.0, "backward_ms": 3.0}, "fc2": {"forward_ms": 1.0, "backward_ms": 0.0}},
    )
    reports = {
        f"worker-0-{i}": {**facts, "unit": f"worker-0-{i}", "layers": table, "step_parts": {"compute_ms": float(i)}}
        for i, table in enumerate(tables)
    }
    result = summarise("mlp", "mlp-1", layout, last_event(layout, reports))
    assert result.layers == {
        "fc1": {"forward_ms": 2.0, "backward_ms": 3.0},
        "fc2": {"forward_ms": 1.0, "backward_ms": 0.0},
    }
    assert result.step_parts == {"compute_ms": 0.0}
    assert {"layers", "step_parts"} <= set(result.summary())
    plain = summarise("mlp", "mlp-1", layout, last_event(layout, {}))
    assert not {"layers", "step_parts"} & set(plain.summary())


def test_a_job_that_was_killed_has_its_last_speed() -> None:
    layout = plan_processes(ClusterConf(nworker_groups=2, nworkers_per_group=1))
    reports = {f"worker-{i}-0": {"unit": f"worker-{i}-0", "state": "aborted", "step": 7} for i in range(2)}
    result = summarise("mlp", "mlp-1", layout, replace(last_event(layout, reports), samples_per_s=123.4))
    assert (result.samples_per_s, result.step_ms) == (123.4, {})
