"""``attach``: show the progress of a job on a cluster, without being its client."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.cli.cluster_jobs import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.job_ends import Leaves, end_line, find_running, row_at_end
from singa_dask.cli.signals import Signals
from singa_dask.observe import start_progress
from singa_dask.runtime import Follower, RemoteJobs

__all__ = ["attach"]


def attach(ctx: click.Context, job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Show a job until it ends, or until a signal comes; exit with its code."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job) or jobs.find(job)
        if row["ended"] is None:
            row = show(jobs, row)
    if row["ended"] is not None:
        ctx.exit(row["exit_code"])


def show(jobs: RemoteJobs, row: dict[str, Any]) -> dict[str, Any]:
    """Show a job; return its row at the end.

    Raises
    ------
    ClusterError
        The scheduler is gone, or knows the job no more.
    """
    n_groups = jobs.view(row["id"])["topology"]["nworker_groups"]
    echo(f"{row['id']}: {row['state']}, step {max(row['step'], 0)} of {row['train_steps']}", err=True)
    with start_progress(n_groups, row["train_steps"], run_url=row["run_url"]) as progress, Signals() as signals:
        follower = Follower(jobs.client, row["id"], progress.on_event, after=row["n_events"] - 1)
        signals.hand_to(Leaves(follower))
        over = follower.follow()
    if over is None:
        echo(f"detached; the job goes on: singa-dask attach {row['id']}", err=True)
        return row
    row = row_at_end(jobs, row["id"], over)
    echo(end_line(row), err=True)
    return row
