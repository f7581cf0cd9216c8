"""``run --detach``: let the cluster drive a job, and say how to come back to it."""

from __future__ import annotations

import sys

from singa_dask.cli.echo import echo
from singa_dask.cli.signals import Signals
from singa_dask.jobs.datasets.hosts import placed
from singa_dask.observe import short_url, to_json
from singa_dask.runtime import JobRun, Patience, connect, detach, plan_processes, remote_hosts, wait_for_room

__all__ = ["detach_run"]


def detach_run(
    run: JobRun, scheduler: str | None, scheduler_file: str | None, patience: Patience, *, as_json: bool, quiet: bool
) -> None:
    """Hand a run over to a cluster; return when it has started there, and end the program when it is refused."""
    with Signals(), connect(scheduler, scheduler_file, patience=patience) as client:
        if patience.seconds and not run.queue:
            wait_for_room(client, plan_processes(run.cluster), patience)
        if (hosts := remote_hosts(client, run.run_url)) and not quiet:
            message = f"warning: the run directory {run.run_url} is a local path, and there are Dask workers "
            message += f"on other hosts: {', '.join(hosts)}. If it is not the same disk there, give a URL by --run-dir."
            echo(message, err=True)
        with placed(run, client, leave=True) as run:
            found = detach(client, run)
    failure = found.get("failure")
    if failure:
        for text in (failure["reason"], failure["error"].rstrip()):
            if text:
                echo(text, err=True)
        sys.exit(failure["exit_code"])
    if not quiet:
        if found["state"] == "queued":
            why = f": {found['reason']}" if found["reason"] else ""
            echo(f"in line, place {found['place']}{why}", err=True)
        tell(run)
    echo(to_json({"id": run.job_id, "run_url": run.run_url}) if as_json else run.job_id)


def tell(run: JobRun) -> None:
    """Print how to come back."""
    for line in (
        f"run directory: {short_url(run.run_url)}",
        f"progress: singa-dask attach {run.job_id}",
        f"to end it with a checkpoint: singa-dask stop {run.job_id}",
    ):
        echo(line, err=True)
