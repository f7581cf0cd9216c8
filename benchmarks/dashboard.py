"""For how long requests for the page and for Prometheus block the scheduler: 50 jobs of 64 units, 1,000 ended ones.

``python -m benchmarks.dashboard``
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import prometheus_client

from singa_dask.runtime.dashboard.pages import as_json
from singa_dask.runtime.dashboard.prometheus import JobsCollector
from tests.runtime.dashboard.jobs import full, shown, told

ROUNDS = 50


def milliseconds(call: Callable[[], object]) -> str:
    """Return median and maximum of the time of a call on a core of its own."""
    taken = []
    for _ in range(ROUNDS):
        start = time.thread_time()
        call()
        taken.append(1e3 * (time.thread_time() - start))
    return f"median {statistics.median(taken):6.2f} ms, maximum {max(taken):6.2f} ms"


def main() -> None:
    """Print the table."""
    records = [full(f"job-{i}") for i in range(50)]
    source = shown(records, n_ended=1000)
    for n_jobs, each in ((50, source), (1, shown(records[:1]))):
        print(f"jobs of 64 units: {n_jobs}")
        registry = prometheus_client.CollectorRegistry()
        registry.register(JobsCollector(each))
        requests: dict[str, Callable[[], str | bytes]] = {
            "jobs.json": lambda each=each: as_json(each.overview()),
            "job.json": lambda each=each: as_json(each.describe("job-0")),
            "metrics": lambda registry=registry: prometheus_client.generate_latest(registry),
        }
        for name, request in requests.items():
            print(f"  {name:9s} {len(request()) / 1e3:6.1f} kB  {milliseconds(request)}")
    activity = records[0].activity
    event = {
        "event": "metrics",
        "phase": "train",
        "group": 0,
        "step": 10**6,
        "samples_per_s": 1.0,
        "metrics": {"loss": 1.0, "accuracy": 0.5},
    }
    beats = iter(range(10**9))

    def beat() -> None:
        at = 2000.0 + next(beats) / 2
        for process in range(16):
            activity.add_progress(told(process, 40), at)

    print(f"  an event of metrics      {milliseconds(lambda: activity.add_event(event))}")
    print(f"  heartbeats of 16 workers {milliseconds(beat)}")


if __name__ == "__main__":
    main()
