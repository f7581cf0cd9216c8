"""Average the metrics of the workers of each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.layers.metrics import add_totals


class MetricsMerger:
    """Averages the metrics of the workers of each group, once all of them have reported.

    Parameters
    ----------
    n_workers : int
        Number of workers in a group.

    Attributes
    ----------
    latest : dict of str to dict
        Last metrics of the first worker group in each phase.
    last_step : int
        Last step for which any worker has reported metrics; -1 before the first report.
    """

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers
        self.latest: dict[str, dict[str, float]] = {}
        self.last_step = -1
        self._speeds: dict[int, float] = {}  # worker group -> samples per second when last reported
        self._reported: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
        # (phase, group) -> newest step that was shown; after a restart, repeated steps are not shown again
        self._shown: dict[tuple[str, int], int] = {}

    @property
    def samples_per_s(self) -> float:
        """Sum of the last reported speeds of all worker groups, in samples per second."""
        return round(sum(self._speeds.values()), 1)

    def add(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """Add the metrics of one worker.

        Return the means of the worker's group if all workers of the group have reported, else None.
        """
        self.last_step = max(self.last_step, event["step"])
        key = (event["phase"], event["group"], event["step"])
        if event["step"] <= self._shown.get(key[:2], -1):
            return None
        reported, incarnation = self._reported.setdefault(key, []), event.get("incarnation", 0)
        newest = max((report.get("incarnation", 0) for report in reported), default=incarnation)
        if incarnation < newest:
            return None  # a late report of a group that has restarted
        if incarnation > newest:
            reported.clear()
        reported.append(event)
        if len(reported) < self.n_workers:
            return None
        del self._reported[key]
        # sort the reports, so that the last bits of sums do not depend on the order of arrival
        reported.sort(key=lambda report: report["worker"])
        self._shown[key[:2]] = event["step"]
        totals = add_totals(report["metrics"] for report in reported)
        metrics = {name: total / count if count else 0.0 for name, (total, count) in totals.items()}
        if event["group"] == 0:
            self.latest[event["phase"]] = metrics
        speeds = {
            name: float(np.mean([report[name] for report in reported]))
            for name in ("samples_per_s", "wait_data_ms", "wait_params_ms")
            if name in event
        }
        if "samples_per_s" in speeds:
            self._speeds[event["group"]] = speeds["samples_per_s"]
        keep = {name: event[name] for name in ("event", "step", "phase", "group", "time", "lr") if name in event}
        # workers of a partitioned net that read no records report no epoch
        epochs = [report["epoch"] for report in reported if report.get("epoch") is not None]
        return {**keep, **({"epoch": max(epochs)} if epochs else {}), **speeds, "metrics": metrics}
