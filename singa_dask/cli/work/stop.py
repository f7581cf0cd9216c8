"""``stop``: end a job on a cluster with a checkpoint."""

from __future__ import annotations

from singa_dask.cli.cluster_jobs import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.job_ends import find_running, has_left_line, wait_for_end

__all__ = ["stop"]


def stop(job: str, scheduler: str | None, scheduler_file: str | None, no_wait: bool) -> None:
    """Stop a job with a checkpoint."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job)
        if row is None:
            return
        jobs.stop(row["id"])
        if has_left_line(row):
            return
        echo(f"{row['id']} stops with a checkpoint.", err=True)
        if not no_wait:
            wait_for_end(jobs, row["id"], row["n_events"])
