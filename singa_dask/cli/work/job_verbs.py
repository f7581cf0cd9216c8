"""What the verbs for one job on a cluster do, and how such a job is found, followed, and waited for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from singa_dask.cli.clusters import jobs_of
from singa_dask.cli.echo import echo
from singa_dask.cli.signals import Signals
from singa_dask.errors import CheckpointError, ClusterError, ConfigError, SingaError
from singa_dask.observe import join_if_fits, log_line, read_summary, short_url, start_progress
from singa_dask.runtime import Follower, RemoteJobs

LOOK_S = 0.2


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
    with start_progress(n_groups, row["train_steps"], run_url=row["run_url"]) as progress:
        follower = Follower(jobs.client, row["id"], progress.on_event, after=row["n_events"] - 1)
        with Signals() as signals:
            signals.hand_to(lambda name: follower.leave())
            over = follower.follow()
        if over is not None:
            with contextlib.suppress(SingaError):
                tell_learning(jobs, row["id"], progress.on_event)
    if over is None:
        echo(f"detached; the job goes on: singa-dask attach {row['id']}", err=True)
        return row
    row = row_at_end(jobs, row["id"], over)
    echo(end_line(row), err=True)
    return row


def tell_learning(jobs: RemoteJobs, job_id: str, on_event: Callable[[dict[str, Any]], None]) -> None:
    """Say what a detached job has learnt, once its driver has written the summary; of others their `run` does."""
    nobody = threading.Event()
    while (facts := jobs.view(job_id)).get("driver"):
        nobody.wait(LOOK_S)
    for line in read_summary(facts["run_url"]).get("learning", {}).get("sentences", ()) if facts["detached"] else ():
        on_event({"event": "notice", "unit": "driver", "level": "INFO", "message": line})


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


def kill(job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """End a job at once."""
    end_job(job, scheduler, scheduler_file, RemoteJobs.kill)


def stop(job: str, scheduler: str | None, scheduler_file: str | None, no_wait: bool) -> None:
    """Stop a job with a checkpoint."""
    end_job(job, scheduler, scheduler_file, RemoteJobs.stop, "stops with a checkpoint.", waits=not no_wait)


def end_job(
    job: str,
    scheduler: str | None,
    scheduler_file: str | None,
    ask: Callable[[RemoteJobs, str], object],
    message: str = "",
    waits: bool = True,
) -> None:
    """Ask for the end of a job that has not ended, wait for it unless the job was in line, and say how it came.

    Raises
    ------
    ClusterError
        The scheduler is gone.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job)
        if row is None:
            return
        ask(jobs, row["id"])
        if row["state"] == "queued":
            message, waits = "leaves the line.", False
        if message:
            echo(f"{row['id']} {message}", err=True)
        if not waits:
            return
        follower = Follower(jobs.client, row["id"], lambda event: None, after=row["n_events"] - 1)
        over = follower.follow()
        assert over is not None, "nobody lets it leave"
        echo(end_line(row_at_end(jobs, row["id"], over)), err=True)
        if over["stuck"]:
            echo(f"units that do not end: {', '.join(over['stuck'])}; they hold threads of Dask workers.", err=True)


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
                signals.hand_to(lambda name: follower.leave())
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


def stack(ctx: click.Context, job: str, scheduler: str | None, scheduler_file: str | None, unit: str) -> None:
    """Print what the units of a job are doing."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job, with_units=True)
        found = jobs.stacks(row["id"], unit) if row else {}
        if row and not found:
            units = jobs.stacks(row["id"])
            raise ConfigError(f"--unit {unit}: {row['id']} has no such unit. Known: {', '.join(units)}.")
    for name, facts in found.items():
        what, seconds = facts.get("wait") or ("", 0.0)
        waits = f", waits for {what} ({seconds:.0f} s)" if what else ""
        echo(f"{name} on {facts['address']}{waits}")
        for line in facts.get("stack", [f"  no stack: {facts.get('error')}"]):
            echo(line)
        echo()
    ctx.exit(0 if any("stack" in facts for facts in found.values()) else 1)


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
