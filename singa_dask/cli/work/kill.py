"""``kill``: end a job on a cluster at once."""

from __future__ import annotations

from singa_dask.cli.cluster_jobs import jobs_of
from singa_dask.cli.job_ends import find_running, has_left_line, wait_for_end

__all__ = ["kill"]


def kill(job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """End a job at once."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job)
        if row is not None:
            jobs.kill(row["id"])
            if not has_left_line(row):
                wait_for_end(jobs, row["id"], row["n_events"])
