"""What the reports of workers add up to."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from singa_dask.runtime.job.report import MetricsMerger


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
        losses.add(merged["loss"])
    assert len(losses) == 1
