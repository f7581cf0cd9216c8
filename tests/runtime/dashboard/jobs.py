"""Jobs of 64 units that run nowhere, and what a scheduler knows of them."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from singa_dask.conf import JobConf
from singa_dask.runtime.job.names import SITE
from singa_dask.runtime.job.scheduler.detached_jobs import DetachedJobs
from singa_dask.runtime.job.scheduler.history import History
from singa_dask.runtime.job.scheduler.job_queue import JobQueue
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.job.scheduler.views import Views
from singa_dask.runtime.job.state.submission import JobSpec
from tests.runtime.processes import digits

__all__ = ["full", "shown"]

GROUPS, PER_GROUP, PROCESSES = 8, 4, 16
SETS = (
    f"cluster.nworker_groups={GROUPS}",
    f"cluster.nworkers_per_group={PER_GROUP}",
    "cluster.nservers_per_group=32",
    "cluster.nworkers_per_procs=2",
    "cluster.nservers_per_procs=2",
)


def job() -> JobConf:
    """Return a job of 32 workers and 32 servers in 16 processes."""
    return digits("hybrid", *SETS, "train_steps=10000")


def full(job_id: str, n_reports: int = 300) -> JobRecord:
    """Return a job that has run for a while: all of its curves are long, and one worker is slow."""
    conf = job()
    record = JobRecord(
        JobSpec(
            job_id=job_id,
            job=conf.model_copy(update={"name": job_id}).to_json(),
            workers=[f"tcp://127.0.0.{p // 4 + 1}:{4000 + p}" for p in range(PROCESSES)],
            assignments={},
            sources=[],
            resume=None,
            init_from=(),
            client="",
            owner="ann@host",
            run_url=f"hdfs://host/runs/{job_id}",
        )
    )
    for n in range(n_reports):
        for group in range(GROUPS):
            metrics = {"loss": 2.3 * math.exp(-n / 60) + 0.02 * group, "accuracy": 1 - 0.9 * math.exp(-n / 60)}
            facts = {"phase": "train", "group": group, "step": 10 * n, "samples_per_s": 900.0 + n % 7}
            record.activity.add_event({"event": "metrics", **facts, "metrics": metrics})
        record.activity.add_event(
            {"event": "metrics", "phase": "test", "group": 0, "step": 10 * n, "metrics": {"loss": 0.5, "accuracy": 0.9}}
        )
    for beat in range(20):
        for process in range(PROCESSES):
            record.activity.add_progress(told(process, beat), 1000.0 + beat / 2)
    for n in range(30):
        record.add_event({"event": "log", "level": "INFO", "message": f"line {n} of a log"})
    return record


def told(process: int, beat: int) -> dict[str, Any]:
    """Return what a process with two workers tells with a heartbeat."""
    workers = {}
    for worker in (2 * process, 2 * process + 1):
        group, place = divmod(worker, PER_GROUP)
        compute_s = 0.05 if worker != 5 else 0.2
        steps = 4 * beat
        waits = [0.002 * steps, (0.22 - compute_s) * steps, 0.0]
        workers[f"worker-{group}-{place}"] = [steps, 0.222 * steps, *waits]
    return {"process": process, "incarnation": 0, "steps": {}, "waits": {}, "workers": workers, "bytes": [10**9, 10**9]}


def shown(records: list[JobRecord], n_ended: int = 0) -> Views:
    """Return what a scheduler with these jobs shows, after a number of others have ended."""
    jobs = {record.spec.job_id: record for record in records}
    history = History()
    if records:
        facts = replace(records[0].facts(), state="done", ended=1000.0)
        history.facts = {f"ended-{n}": replace(facts, id=f"ended-{n}") for n in range(n_ended)}
    workers = {
        address: SimpleNamespace(
            name=f"w{p}",
            host=f"10.0.0.{p // 4 + 1}",
            metrics={SITE: {each: [told(p, 19)] for each in jobs}, "cpu": 150.3 + p, "memory": 10**9},
            memory_limit=2 * 10**9,
        )
        for p, address in enumerate(records[0].spec.workers if records else ())
    }
    scheduler: Any = SimpleNamespace(address="tcp://127.0.0.1:8786", workers=workers)
    waiting = JobQueue(scheduler, history)
    sites: Any = None  # no Dask worker is asked
    drivers = DetachedJobs(scheduler, jobs, history, sites, waiting, lambda job_id, event: None, lambda worker: False)
    known: Any = SimpleNamespace(scheduler=scheduler, records=jobs, history=history, queue=waiting, detached=drivers)
    return Views(known)
