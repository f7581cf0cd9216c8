"""What the verbs for one job on a cluster share: how it ended, and waiting for its end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from singa_dask.cli.echo import echo
from singa_dask.errors import ClusterError, ConfigError, SingaError
from singa_dask.observe import join_if_fits, short_url
from singa_dask.runtime import Follower, RemoteJobs

__all__ = ["Leaves", "end_line", "find_running", "has_left_line", "row_at_end", "wait_for_end"]


class Leaves:
    """Ends the following of a job when a signal comes, and asks nothing of the job."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def stop(self, signal_name: str) -> None:
        """Leave; safe in a signal handler."""
        self._follower.leave()


def find_running(jobs: RemoteJobs, piece: str, with_units: bool = False) -> dict[str, Any] | None:
    """Return the row of a job; if it has ended say how, and return None.

    Raises
    ------
    ConfigError
        ``with_units``, and the job waits in line.
    """
    row = jobs.find(piece)
    if with_units and row["state"] == "queued":
        raise ConfigError(f"{row['id']}: the job waits in line, and has no units yet.")
    if row["ended"] is None:
        return row
    echo(f"{row['id']} has ended already.\n{end_line(row)}", err=True)
    return None


def has_left_line(row: Mapping[str, Any]) -> bool:
    """Return whether a job that was stopped was in line, and say so: then there is no end to wait for."""
    if row["state"] != "queued":
        return False
    echo(f"{row['id']} leaves the line.", err=True)
    return True


def end_line(row: Mapping[str, Any]) -> str:
    """Describe how a job has ended, in some lines."""
    end = join_if_fits(f"{row['state']}: {row['step']} steps", f"see {short_url(row['run_url'])}")
    return f"{row['reason']}\n{end}" if row["reason"] else end


def row_at_end(jobs: RemoteJobs, job_id: str, over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a job after its last event, see `Follower.follow`.

    Raises
    ------
    ClusterError
        The scheduler is gone, or knows the job no more.
    """
    with contextlib.suppress(SingaError):
        row = jobs.find(job_id)
        if row["ended"] is not None:
            return row
    raise ClusterError(f"{job_id}: {over['failure']['reason'] if over['failure'] else 'it is not known any more.'}")


def wait_for_end(jobs: RemoteJobs, job_id: str, n_events: int) -> None:
    """Wait until a job has ended, and say how.

    Raises
    ------
    ClusterError
        The scheduler is gone.
    """
    follower = Follower(jobs.client, job_id, lambda event: None, after=n_events - 1)
    over = follower.follow()
    assert over is not None, "nobody lets it leave"
    echo(end_line(row_at_end(jobs, job_id, over)), err=True)
    if over["stuck"]:
        echo(f"units that do not end: {', '.join(over['stuck'])}; they hold threads of Dask workers.", err=True)
