"""``checkpoint``: a job on a cluster writes a checkpoint now."""

from __future__ import annotations

from typing import Any

from singa_dask.cli.cluster_jobs import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.job_ends import find_running
from singa_dask.errors import CheckpointError
from singa_dask.runtime import Follower

__all__ = ["checkpoint"]


def checkpoint(job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Ask for a checkpoint, and wait until it is complete."""
    found: dict[str, Any] = {}
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job, with_units=True)
        if row is None:
            raise CheckpointError(f"{job}: there is nothing to write.")
        first = jobs.checkpoint(row["id"])

        def look(event: dict[str, Any]) -> None:
            if event["event"] in ("checkpoint", "log") and event.get("step", -1) >= first and not found:
                if "url" in event or "error" in event:
                    found.update(event)
                    follower.leave()

        follower = Follower(jobs.client, row["id"], look, after=row["n_events"] - 1)
        over = follower.follow()
    if "url" not in found:
        why = found.get("error") or (over or {}).get("failure") or "the job ended before it was written."
        raise CheckpointError(f"{row['id']}: {why['reason'] if isinstance(why, dict) else why}")
    echo(found["url"])
