"""Commands for jobs on a cluster: ``attach``, ``list``, ``view``, ``logs``, ``stack``, ``stop``, ``kill``, ...."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from singa_dask import observe, runtime
from singa_dask.cli.clusters import Signals, jobs_of
from singa_dask.cli.options import cluster_options, job_argument
from singa_dask.cli.printing import TextColumn, ago, echo, table, terminal_width
from singa_dask.errors import CheckpointError, ClusterError, ConfigError, SingaError
from singa_dask.runtime.job.limits import limit
from singa_dask.shown import plural, shown

LOOK_S = 0.2
SHOWN_ENDED, SHOWN_EVENTS = 10, 10
MAX_REASON = 60
"""Characters of a reason that ``list`` shows."""
Row = Mapping[str, Any]
yes_option = click.option("--yes", is_flag=True, help="Do not ask before ending another user's job.")


@click.command()
@job_argument
@click.pass_context
def attach(ctx: click.Context, job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Follow a job on a cluster, as run shows it.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory. Ctrl-C ends
    this command, not the job. The exit code is the job's when it has ended, see run; 0 after Ctrl-C.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job) or jobs.find(job)
        if row["ended"] is None:
            row = show(jobs, row)
    if row["ended"] is not None:
        ctx.exit(row["exit_code"])


@click.command()
@job_argument
def checkpoint(job: str, scheduler: str | None, scheduler_file: str | None) -> None:
    """Write a checkpoint of a job on a cluster now.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory. Prints the URL
    of the checkpoint when it is complete.
    """
    answer: dict[str, Any] = {}
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job, with_units=True)
        if row is None:
            raise CheckpointError(f"{job}: there is nothing to write.")
        first = jobs.checkpoint(row["id"])

        def look(event: dict[str, Any]) -> None:
            if event["event"] in ("checkpoint", "log") and event.get("step", -1) >= first and not answer:
                if "url" in event or "error" in event:
                    answer.update(event)
                    follower.leave()

        follower = runtime.Follower(jobs.client, row["id"], look, after=row["n_events"] - 1)
        over = follower.follow()
    if "url" not in answer:
        why = answer.get("error") or (over and over.reason) or "the job ended before the checkpoint was written."
        raise CheckpointError(f"{row['id']}: {why}")
    echo(answer["url"])


@click.command()
@job_argument
@yes_option
def kill(job: str, scheduler: str | None, scheduler_file: str | None, yes: bool) -> None:
    """End a job on a cluster at once.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory. No last
    checkpoint is written; existing ones stay.
    """
    end_job(job, scheduler, scheduler_file, yes, runtime.RemoteJobs.kill)


@click.command()
@job_argument
@click.option("--unit", metavar="UNIT", default="", help="Only lines of this unit, e.g. worker-0-0, or driver.")
@click.option("--follow", "-f", is_flag=True, help="Print new lines until the job ends, or until Ctrl-C.")
def logs(job: str, scheduler: str | None, scheduler_file: str | None, unit: str, follow: bool) -> None:
    """Print the log of a job on a cluster.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory. The scheduler
    keeps the newest events of each job; log/ in the run directory has all of them.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = _find(jobs, job)
        if unit:
            _check_unit(unit, row["id"], jobs.events(row["id"]))
        files = f"log files: {row['run_url']}/log/"

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] in ("log", "notice") and unit in ("", event["unit"]):
                echo(observe.log_text(event, is_named=not unit))

        if row["ended"] is None and follow:
            over = _follow(runtime.Follower(jobs.client, row["id"], show))
            if over is not None:
                row_at_end(jobs, row["id"], over)
            return
        last, n_kept = -1, 0
        for event in jobs.events(row["id"]):
            last, n_kept = event["n"], n_kept + 1
            show(event)
    if not n_kept:
        echo(f"{row['id']}: the scheduler has no events of this job. {files}", err=True)
    elif n_kept <= last:
        echo(f"the scheduler kept only warnings, errors and the newest of the other events. {files}", err=True)


@click.command()
@job_argument
@click.option("--unit", metavar="UNIT", default="", help="Only this unit, e.g. worker-0-0.")
@click.pass_context
def stack(ctx: click.Context, job: str, scheduler: str | None, scheduler_file: str | None, unit: str) -> None:
    """Print what the units of a job are doing: their Python stacks.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory. The job
    continues meanwhile, and stuck units are shown, too.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job, with_units=True)
        stacks = jobs.stacks(row["id"], unit) if row else {}
        if row and not stacks:
            units = jobs.stacks(row["id"])
            raise ConfigError(f"--unit {unit}: {row['id']} has no such unit. Known: {', '.join(units)}.")
    if stacks:
        echo(observe.stack_text(stacks))
    ctx.exit(0 if any("stack" in facts for facts in stacks.values()) else 1)


@click.command()
@job_argument
@click.option("--no-wait", is_flag=True, help="Do not wait for the end of the job.")
@yes_option
def stop(job: str, scheduler: str | None, scheduler_file: str | None, no_wait: bool, yes: bool) -> None:
    """Stop a job on a cluster with a checkpoint.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory. run --resume
    continues from the checkpoint.
    """
    end_job(job, scheduler, scheduler_file, yes, runtime.RemoteJobs.stop, "stops with a checkpoint.", waits=not no_wait)


@click.command()
@job_argument
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one line of JSON.")
def view(job: str, scheduler: str | None, scheduler_file: str | None, as_json: bool) -> None:
    """Describe a job on a cluster: units, hosts, steps, restarts.

    JOB is its id, at least 4 characters of the id's beginning or end, its name, or its run directory.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        facts = jobs.view(_find(jobs, job)["id"])
    if as_json:
        echo(observe.to_json(facts))
        return
    for line in describe(facts, terminal_width(), time.time()):
        echo(line)


@click.command("list")
@cluster_options("List the jobs of this scheduler.")
@click.option(
    "--runs",
    metavar="URL",
    help="List the run directories in this directory, including jobs whose scheduler is gone.",
)
@click.option("--all", "show_all", is_flag=True, help="Show all ended jobs, not only the last ten.")
@click.option("--mine", is_flag=True, help="Show only jobs that this user has started on this host.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as one line of JSON.")
def list_jobs(
    scheduler: str | None, scheduler_file: str | None, runs: str | None, show_all: bool, mine: bool, as_json: bool
) -> None:
    """List the jobs on a cluster, or in a directory of runs.

    A job on the cluster is starting, running, restarting or stopping; an ended job is done, stopped or failed. A run in
    a directory is lost if it has no summary and nothing writes to it.
    """
    rows = of_runs(runs, scheduler, scheduler_file) if runs else of_cluster(scheduler, scheduler_file)
    rows = [row for row in rows if not mine or row["owner"] == runtime.this_user()]
    rows = sorted(rows, key=lambda row: (row["ended"] is None, row["ended"] or row["began"]), reverse=True)
    if as_json:
        echo(observe.to_json(rows))
        return
    ended = [row for row in rows if row["ended"] is not None]
    hidden = [] if show_all else ended[SHOWN_ENDED:]
    rows = rows[: len(rows) - len(hidden)]
    if not rows:
        echo("no jobs.", err=True)
    for line in table(columns(rows, time.time()), terminal_width()) if rows else ():
        echo(line)
    if hidden:
        echo(f"{len(hidden)} more have ended; --all shows them.", err=True)


def show(jobs: runtime.RemoteJobs, row: dict[str, Any]) -> dict[str, Any]:
    """Show the progress of a job until it ends or Ctrl-C, and return its last row in the list of jobs.

    Raises a ClusterError if the scheduler or the job is gone.
    """
    n_groups = jobs.view(row["id"])["topology"]["nworker_groups"]
    echo(f"{row['id']}: {row['state']}, step {_made(row)} of {row['train_steps']}", err=True)
    with observe.start_progress(n_groups, row["train_steps"], run_url=row["run_url"]) as progress:
        over = _follow(runtime.Follower(jobs.client, row["id"], progress.on_event, after=row["n_events"] - 1))
        if over is not None:
            with contextlib.suppress(SingaError):
                tell_learning(jobs, row["id"], progress.on_event)
    if over is None:
        echo(f"detached; the job continues: singa-dask attach {row['id']}", err=True)
        return row
    row = row_at_end(jobs, row["id"], over)
    echo(end_line(row), err=True)
    return row


def _follow(follower: runtime.Follower) -> runtime.JobEnd | None:
    """Follow a job to its end, or until a signal; see `Follower.follow`."""
    with Signals() as signals:
        signals.hand_to(lambda name: follower.leave())
        return follower.follow()


def tell_learning(jobs: runtime.RemoteJobs, job_id: str, on_event: Callable[[dict[str, Any]], None]) -> None:
    """Wait for the summary of a detached job, and pass its results about learning to ``on_event``.

    For a job that is not detached, `run` prints these results itself. A driver on a silent Dask worker may never write
    the summary, so the wait is limited.
    """
    end = time.monotonic() + limit("answer")
    while (facts := jobs.view(job_id)).get("driver"):
        if time.monotonic() >= end:
            where = f"its driver on the Dask worker at {facts['driver']} has not written the summary"
            late = f"{where} within {limit('answer'):g} s. singa-dask show {facts['run_url']} reads it later."
            on_event({"event": "notice", "unit": "driver", "level": "WARNING", "message": f"{job_id}: {late}"})
            return
        time.sleep(LOOK_S)
    if facts["detached"]:
        for line in observe.read_summary(facts["run_url"]).get("learning", {}).get("sentences", ()):
            on_event({"event": "notice", "unit": "driver", "level": "INFO", "message": line})


def end_job(
    job: str,
    scheduler: str | None,
    scheduler_file: str | None,
    yes: bool,
    ask: Callable[[runtime.RemoteJobs, str], object],
    message: str = "",
    waits: bool = True,
) -> None:
    """End a job by calling ``ask``; wait until it has ended, unless it was queued, and print how it ended.

    Raises
    ------
    ClusterError
        The scheduler is gone.
    ConfigError
        The job belongs to another user, and the question whether to end it was not answered with yes.
    """
    with jobs_of(scheduler, scheduler_file) as jobs:
        row = find_running(jobs, job)
        if row is None:
            return
        if not (yes or row["owner"] == runtime.this_user() or _confirmed(f"{row['id']} is a job of {row['owner']}.")):
            raise ConfigError(f"{row['id']}: it is a job of {row['owner']}, and continues. Pass --yes to end it.")
        ask(jobs, row["id"])
        if row["state"] == "queued":
            message, waits = "leaves the queue.", False
        if message:
            echo(f"{row['id']} {message}", err=True)
        if not waits:
            return
        follower = runtime.Follower(jobs.client, row["id"], lambda event: None, after=row["n_events"] - 1)
        over = follower.follow()
        assert over is not None, "the follower never leaves"
        echo(end_line(row_at_end(jobs, row["id"], over)), err=True)
        if over.stuck:
            echo(f"units that do not end: {', '.join(over.stuck)}; they hold threads of Dask workers.", err=True)


def _confirmed(what: str) -> bool:
    """Ask whether to end a job, and return the answer; False without a terminal."""
    try:
        return click.confirm(f"{shown(what)} End it?", err=True)
    except click.Abort:
        echo(err=True)
        return False


def _check_unit(unit: str, job_id: str, events: Iterable[Mapping[str, Any]]) -> None:
    """Raise a ConfigError if the events of a job show that it has no such unit."""
    placed = [event for event in events if event["event"] == "placed"]
    known = {str(each) for event in placed for process in event["processes"] for each in process["units"]}
    if known and unit not in known:
        raise ConfigError(f"--unit {unit}: {job_id} has no such unit. Known: {', '.join(sorted(known))}.")


def _find(jobs: runtime.RemoteJobs, piece: str) -> dict[str, Any]:
    """Return the row of a job; print a line if it is the newest of several matching jobs, all ended."""
    row = jobs.find(piece)
    if row.get("also"):
        echo(f"{piece}: {row['id']} is the newest of {len(row['also']) + 1} matching jobs. All have ended.", err=True)
    return row


def find_running(jobs: runtime.RemoteJobs, piece: str, with_units: bool = False) -> dict[str, Any] | None:
    """Return the row of a job; if it has ended, print how, and return None.

    Raises
    ------
    ConfigError
        The job is queued, and the caller needs it ``with_units``.
    """
    row = _find(jobs, piece)
    if with_units and row["state"] == "queued":
        raise ConfigError(f"{row['id']}: the job is queued, and has no units yet.")
    if row["ended"] is None:
        return row
    echo(f"{row['id']} has ended already.\n{end_line(row)}", err=True)
    return None


def end_line(row: Mapping[str, Any]) -> str:
    """Describe how a job has ended."""
    steps = plural(row["step"], "step")
    end = observe.join_if_fits(f"{row['standing']}: {steps}", f"see {observe.short_url(row['run_url'])}")
    return f"{row['reason']}\n{end}" if row["reason"] else end


def row_at_end(jobs: runtime.RemoteJobs, job_id: str, over: runtime.JobEnd) -> dict[str, Any]:
    """Return the row of a job after its last event; raise a ClusterError if scheduler or job is gone."""
    with contextlib.suppress(SingaError):
        row = jobs.find(job_id)
        if row["ended"] is not None:
            return row
    raise ClusterError(f"{job_id}: {over.reason or 'the scheduler no longer knows it.'}")


def of_cluster(scheduler: str | None, scheduler_file: str | None) -> list[dict[str, Any]]:
    """Return the rows of the jobs of a cluster."""
    with jobs_of(scheduler, scheduler_file) as jobs:
        rows = jobs.rows()
        if jobs.unread:
            echo(jobs.unread, err=True)
        return rows


def of_runs(url: str, scheduler: str | None, scheduler_file: str | None) -> list[dict[str, Any]]:
    """Return the rows of the runs in a directory, from the scheduler if it knows the newest job of a run."""
    from singa_dask.observe.files.run_list import list_runs

    rows = list_runs(url)
    known: dict[str, dict[str, Any]] = {}
    if scheduler or scheduler_file:
        try:
            # the newest job of a directory comes first, so it must be stored last
            known = {row["run_url"]: row for row in reversed(of_cluster(scheduler, scheduler_file))}
        except ClusterError as error:
            echo(f"{error} The states are read from the files.", err=True)
    return [_newer(row, known.get(row["run_url"], row)) for row in rows]


def _newer(row: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return the row ``known`` of the scheduler, unless the files of the run show a later job without the scheduler."""
    if known["ended"] is None or row["id"] == known["id"]:
        return known
    return row if row["ended"] is None or row["ended"] > known["ended"] else known


def columns(rows: Sequence[Row], now: float) -> list[TextColumn]:
    """Return the table of some jobs."""
    return [
        TextColumn("job", [row["id"] for row in rows]),
        TextColumn("name", [row["name"] for row in rows], 5),
        TextColumn("owner", [row["owner"] for row in rows], 3),
        TextColumn("state", [row.get("standing", row["state"]) for row in rows]),
        TextColumn("step", [_steps(row) for row in rows], right=True),
        TextColumn("loss", ["" if row["loss"] is None else f"{row['loss']:.4f}" for row in rows], 1, right=True),
        TextColumn(
            "samples/s", [f"{row['samples_per_s']:.0f}" if row["samples_per_s"] else "" for row in rows], 4, True
        ),
        TextColumn("reason", [_cut(row["reason"]) for row in rows], 6),
        TextColumn("since", [ago(now - (row["ended"] or row["began"] or now)) for row in rows], 2, right=True),
    ]


def _cut(reason: str) -> str:
    """Shorten a reason; `view` shows all of it."""
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON].rpartition(' ')[0]} …"


def _steps(row: Row) -> str:
    total, step = row["train_steps"], _made(row)
    return f"{step}/{total}" if total else step


def _made(row: Row) -> str:
    """Return the step of a job; a dash if this scheduler knows of none."""
    return str(row["step"]) if row["step"] >= 0 else "-"


def describe(job: Mapping[str, Any], width: int | None, now: float) -> Iterator[str]:
    """Yield lines that describe a job of `Views.view`."""
    running = job["ended"] is None
    span = f"for {ago(now - job['began'])}" if running else f"{ago(now - job['ended'])} ago"
    yield f"{job['id']}: {job['standing']} {span}, by {job['owner']}"
    if job["reason"]:
        yield job["reason"]
    rate = f", {job['samples_per_s']:.0f} samples/s" if running and job["samples_per_s"] else ""
    yield f"step {_made(job)} of {job['train_steps']}{rate}"
    for phase, metrics in job["metrics"].items():
        yield f"{phase}: {observe.show_metrics(metrics)}"
    yield f"run directory: {observe.short_url(job['run_url'])}"
    if "processes" in job:
        yield ""
        yield from table(units_of(job), width)
    if job["restarts"]:
        yield ""
        yield f"restarts: {job['restarts']}"
        for reason in job.get("reasons", ()):
            yield f"  {reason}"
    if job["events"]:
        yield ""
        for event in job["events"][-SHOWN_EVENTS:]:
            when = time.strftime("%H:%M:%S", time.localtime(event["time"]))
            yield f"{when}  {observe.event_text(event)}"


def units_of(job: Mapping[str, Any]) -> list[TextColumn]:
    """Return the table of the units of a job."""
    rows = [(i, each, unit) for i, each in enumerate(job["processes"]) for unit in each["units"]]
    waits = [each["waits"].get(unit) for _, each, unit in rows]
    return [
        TextColumn("unit", [unit for *_, unit in rows]),
        TextColumn("step", [_step(each["steps"], unit) for _, each, unit in rows], right=True),
        TextColumn("process", [str(i) for i, *_ in rows], 2, right=True),
        TextColumn("start", [str(each["incarnation"]) for _, each, _ in rows], 4, right=True),
        TextColumn("host", [each["host"] for _, each, _ in rows], 3),
        TextColumn("Dask worker", [each["address"] for _, each, _ in rows], 1),
        TextColumn("waits for", [f"{wait[0]} ({wait[1]:.0f} s)" if wait else "" for wait in waits]),
    ]


def _step(steps: Mapping[str, int], unit: str) -> str:
    """Return the step of a worker; empty for a server."""
    kind, group, _ = unit.split("-")
    return str(steps[group]) if kind == "worker" and group in steps else ""
