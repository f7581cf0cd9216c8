"""JobsCollector: metrics of the jobs on a Dask scheduler for Prometheus."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from singa_dask.runtime.dashboard.activity import Activity

if TYPE_CHECKING:
    from prometheus_client.core import Metric

logger = logging.getLogger(__name__)


PREFIX = "singa_dask"
MAX_WORKERS = 256
"""Maximum number of workers in the metrics. With more, collecting would block the scheduler for over 10 ms."""


class JobsView(Protocol):
    """Interface of an object that describes the jobs of a scheduler."""

    def overview(self) -> dict[str, Any]:
        """Return a row for each job, and totals over all jobs."""

    def describe(self, job_id: str) -> dict[str, Any] | None:
        """Return the description of a job; None if it is unknown."""

    def log(self, job_id: str) -> str | None:
        """Return the log of a job as text; None if it is unknown."""

    async def stack_text(self, job_id: str) -> str | None:
        """Return the stacks of the units of a job as text; None if the job is not running."""

    def live(self) -> Iterable[tuple[Mapping[str, Any], Activity]]:
        """Return the facts and the activity of each job that has not ended."""


class JobsCollector:
    """Collects the metrics of the jobs on a scheduler that have not ended."""

    def __init__(self, source: JobsView) -> None:
        self._source = source

    def describe(self) -> Iterable[Metric]:
        """Return no metrics, so that no names are registered: schedulers in one process have equal names."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of all jobs that have not ended."""
        try:
            jobs = list(self._source.live())
            rows = [row for row, _ in jobs]
            return [*self._of_states(rows), *self._of_progress(jobs), *self._of_workers(jobs)]
        except Exception:  # an error would hide Dask's own metrics, too
            logger.exception("the metrics of jobs cannot be shown")
            return []

    def _of_states(self, rows: list[Mapping[str, Any]]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        jobs = GaugeMetricFamily(f"{PREFIX}_jobs", "Number of jobs that have not ended", labels=["state"])
        for state, n in Counter(row["state"] for row in rows).items():
            jobs.add_metric([state], n)
        states = GaugeMetricFamily(f"{PREFIX}_job_state", "1 for the state that a job is in", labels=["job", "state"])
        restarts = CounterMetricFamily(f"{PREFIX}_job_restarts", "Number of restarts", labels=["job"])
        for row in rows:
            states.add_metric([row["id"], row["state"]], 1)
            restarts.add_metric([row["id"]], row["restarts"])
        yield from (jobs, states, restarts)

    def _of_progress(self, jobs: list[tuple[Mapping[str, Any], Activity]]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        steps = GaugeMetricFamily(f"{PREFIX}_job_step", "Newest step of a job", labels=["job"])
        rates = GaugeMetricFamily(f"{PREFIX}_job_samples_per_second", "Samples trained on per second", labels=["job"])
        labels = ["job", "phase", "metric"]
        metrics = GaugeMetricFamily(f"{PREFIX}_job_metric", "Last value of a metric, of worker group 0", labels=labels)
        traffic = CounterMetricFamily(
            f"{PREFIX}_job_bytes", "Bytes of arrays between processes since they started", labels=["job", "direction"]
        )
        for row, activity in jobs:
            steps.add_metric([row["id"]], row["step"])
            if row["samples_per_s"] is not None:
                rates.add_metric([row["id"]], row["samples_per_s"])
            for phase, values in row["metrics"].items():
                for name, value in values.items():
                    metrics.add_metric([row["id"], phase, name], value)
            for direction, n in activity.traffic().items():
                traffic.add_metric([row["id"], direction], n)
        yield from (steps, rates, metrics, traffic)

    def _of_workers(self, jobs: list[tuple[Mapping[str, Any], Activity]]) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily

        waits = CounterMetricFamily(
            f"{PREFIX}_job_wait_seconds",
            "Seconds that a worker has waited since it started: for records, params, or others of its group; "
            f"of {MAX_WORKERS} workers at most",
            labels=["job", "unit", "reason"],
        )
        workers = ((row["id"], *each) for row, activity in jobs for each in activity.totals().items())
        for job, unit, totals in islice(workers, MAX_WORKERS):
            for reason, seconds in totals.items():
                waits.add_metric([job, unit, reason], seconds)
        yield waits
