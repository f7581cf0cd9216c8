"""``run``: read a job, find or start a cluster, let the driver run it, write down what happens."""

from __future__ import annotations

import contextlib
import signal
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import click
from distributed import Client

from singa_dask.cli import job
from singa_dask.cli.options import scheduler_options
from singa_dask.cli.signals import hidden_from_children
from singa_dask.conf import JobConf
from singa_dask.data import fs
from singa_dask.errors import ConfigError, Problem
from singa_dask.observe import RunDirectory, new_job_id, newest_run, start_progress, to_json
from singa_dask.runtime import Driver, Result, connect, embedded_cluster, plan_processes
from singa_dask.runtime.checkpoint import find as find_checkpoint
from singa_dask.runtime.checkpoint import find_values

__all__ = ["run"]

LATEST = "latest"


@click.command()
@job.job_options
@scheduler_options(
    "Run on the Dask cluster of this scheduler. Without one, a cluster of the job's size is started for it."
)
@click.option(
    "--run-dir",
    metavar="URL",
    help="Directory of this run. Without it, a new one in the job's cluster.workspace, or in runs/.",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[URL]",
    help="Go on from a checkpoint: of the run or step at URL, or of the run in --run-dir, or of the newest run of "
    "this job. Write it after JOB.yaml.",
)
@click.option(
    "--init-from",
    metavar="URL",
    multiple=True,
    help="Start with the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
    "directory, a step of it, or a file or workspace of SINGA's. Repeatable; later ones win.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as the last line of stdout.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
@click.pass_context
def run(
    ctx: click.Context,
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    run_dir: str | None,
    resume: str | None,
    init_from: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    r"""Train a net as a job file says.

    \b
    Exit codes: 0 done, 1 the job failed, 2 usage or job file, 3 no cluster or too small,
    4 processes lost, 5 a loss is not finite, 130 and 143 stopped by SIGINT and SIGTERM.
    """
    if resume and init_from:
        raise click.UsageError("--resume takes all from one checkpoint, and --init-from only values. Give one of them.")
    read = job.read(job_file, sets, cluster_file)
    conf = read.job
    if not conf.trains:
        message = "there is nothing to train: no updater, no train_steps. For tests say singa-dask test."
        raise read.locate(ConfigError(Problem((), message)))
    place = choose_place(conf, run_dir, resume)
    elsewhere = bool(scheduler or scheduler_file)
    nets = job.check(read, resume=place.checkpoint, init_from=init_from, check_sources=not elsewhere)
    job.warn(read, nets, strict=strict, quiet=quiet, embedded=not elsewhere)
    if not (resume or quiet):
        for url in init_from or conf.checkpoint_path:
            click.echo(f"initial values from {find_values(url)}", err=True)
    directory = RunDirectory(place.url, read.text, read.resolved(), goes_on=bool(resume))
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(Signals())
        with hidden_from_children(signal.SIGINT):
            client = stack.enter_context(choose_cluster(conf, scheduler, scheduler_file))
        stack.enter_context(directory)
        progress = stack.enter_context(start_progress(conf.cluster.nworker_groups, conf.train_steps, quiet))

        def on_event(event: dict[str, Any]) -> None:
            directory.on_event(event)
            progress.on_event(event)

        signals.driver = Driver(
            conf,
            client,
            run_url=place.url,
            on_event=on_event,
            job_id=place.job_id,
            resume=place.checkpoint,
            init_from=init_from,
        )
        result = signals.driver.run()
        directory.finish(result.summary())
    tell_end(result, place.url, quiet)
    if not quiet:
        job.show_outputs(job.outputs(nets.values()))
    if as_json:
        click.echo(to_json(result.summary()))
    ctx.exit(result.exit_code)


class Place(NamedTuple):
    """Where a run is written, what it is called, and the checkpoint it goes on from."""

    url: str
    job_id: str
    checkpoint: str | None = None


def choose_place(conf: JobConf, run_dir: str | None, resume: str | None) -> Place:
    """Choose the run directory of a job, and find the checkpoint to go on from.

    Raises
    ------
    ConfigError
        No run of this job is there to go on with.
    CheckpointError
        There is no checkpoint.
    """
    parent = conf.cluster.workspace or "runs"
    job_id = new_job_id(conf.name)
    if resume == LATEST:
        run_dir = resume = run_dir or newest_run(parent, conf.name)
    url = fs.absolute(run_dir or fs.join(parent, job_id))
    return Place(url, job_id, find_checkpoint(fs.absolute(resume)) if resume else None)


def choose_cluster(
    conf: JobConf, scheduler: str | None, scheduler_file: str | None
) -> contextlib.AbstractContextManager[Client]:
    """Take the cluster that was named, or one of the job's size for the time of the run."""
    if scheduler_file:
        return connect(scheduler_file=scheduler_file)
    return connect(scheduler) if scheduler else embedded_cluster(plan_processes(conf.cluster))


class Signals:
    """SIGINT and SIGTERM while a job runs: the first asks the driver to stop, the next one to abort.

    Attributes
    ----------
    driver : Driver or None
        None until there is one; a signal then ends the program at once.
    """

    def __init__(self) -> None:
        self.driver: Driver | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self.on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Stop the job, or the program when no job runs yet."""
        name = signal.Signals(number).name
        if self.driver is None:
            click.echo(f"{name}: stopped before the job had started.", err=True)
            raise SystemExit(128 + number)
        click.echo(f"{name}: the job stops with a checkpoint; once more to abort it.", err=True)
        self.driver.stop(name)


def tell_end(result: Result, url: str, quiet: bool) -> None:
    """Say how the job ended; a failure is told even when quiet."""
    for text in (result.reason, result.error.rstrip()):
        if text and (result.state == "failed" or not quiet):
            click.echo(text, err=True)
    if result.bad_records and not quiet:
        click.echo(f"{result.bad_records} bad records were passed over; see {url}/bad_records.jsonl", err=True)
    if not quiet:
        n_local, n_remote = (result.bytes.get(name, 0) for name in ("local", "remote"))
        local = f", {100 * n_local / (n_local + n_remote):.0f} % of the records read locally" if n_remote else ""
        memory = f", at most {result.peak_memory / 2**20:.0f} MiB a process" if result.peak_memory else ""
        click.echo(
            f"{result.state}: {result.steps} steps in {result.seconds:.1f} s{memory}{local}; see {url}", err=True
        )
