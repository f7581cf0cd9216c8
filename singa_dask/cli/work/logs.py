"""``logs``: the log messages of a job, from the events that the scheduler has kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from singa_dask.cli.cluster_jobs import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.job_ends import Leaves, row_at_end
from singa_dask.cli.signals import Signals
from singa_dask.errors import ConfigError
from singa_dask.observe import log_line
from singa_dask.runtime import Follower

__all__ = ["logs"]


def logs(job: str, scheduler: str | None, scheduler_file: str | None, unit: str, follow: bool) -> None:
    """Print the log messages of a job, or of one unit.

    Raises
    ------
    ClusterError
        The job is followed, and the scheduler is gone.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = jobs.find(job)
        if unit:
            _check_unit(unit, row["id"], jobs.events(row["id"]))
        files = f"log files: {row['run_url']}/log/"

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] in ("log", "notice") and unit in ("", event["unit"]):
                name = "" if unit else f"{event['unit']}: "
                echo(log_line({**event, "message": name + event["message"]}))

        if row["ended"] is None and follow:
            follower = Follower(jobs.client, row["id"], show)
            with Signals() as signals:
                signals.hand_to(Leaves(follower))
                over = follower.follow()
            if over is not None:
                row_at_end(jobs, row["id"], over)
            return
        last, n_kept = -1, 0
        for event in jobs.events(row["id"]):
            last, n_kept = event["n"], n_kept + 1
            show(event)
    if not n_kept:
        echo(f"{row['id']}: the scheduler has not kept its events. {files}", err=True)
    elif n_kept <= last:
        echo(f"the scheduler has kept warnings, errors and the newest other events only. {files}", err=True)


def _check_unit(unit: str, job_id: str, events: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a unit that the job does not have, as far as its events tell."""
    placed = [event for event in events if event["event"] == "placed"]
    known = {str(each) for event in placed for process in event["processes"] for each in process["units"]}
    if known and unit not in known:
        raise ConfigError(f"--unit {unit}: {job_id} has no such unit. Known: {', '.join(sorted(known))}.")
