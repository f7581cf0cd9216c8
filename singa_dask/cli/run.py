"""``run``: train a net, on a given cluster or one started for the job; ``find-rate``: propose a learning rate."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from singa_dask import observe, runtime
from singa_dask.cli.clusters import Signals, describe_cluster, hidden_from_children, patience_of
from singa_dask.cli.options import (
    AUTO,
    LATEST,
    MEASURING,
    init_from_option,
    job_options,
    json_option,
    quiet_option,
    scheduler_options,
)
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo
from singa_dask.errors import ClusterError, ConfigError, LostUnitError, NumericError
from singa_dask.shown import plural

if TYPE_CHECKING:
    from singa_dask.conf import JobFile


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """Arguments and options of ``run``."""

    job_file: str
    sets: tuple[str, ...]
    cluster_file: str | None
    strict: bool
    scheduler: str | None
    scheduler_file: str | None
    wait: float
    listen: str | None
    run_dir: str | None
    resume: str | None
    overwrite: bool
    init_from: tuple[str, ...]
    detach: bool
    queue: bool
    priority: int
    profile: bool
    tensorboard: bool
    mlflow: str | None
    as_json: bool
    quiet: bool

    @property
    def elsewhere(self) -> bool:
        """Whether the job runs on a given cluster."""
        return bool(self.scheduler or self.scheduler_file)

    def read_job(self) -> JobFile:
        """Return the job with the changes of all options; raise a UsageError if options contradict each other."""
        from singa_dask.cli import job

        if self.resume and self.init_from:
            raise click.UsageError("--resume restores a whole checkpoint, --init-from only values. Pass one of them.")
        sets = (*self.sets, *sets_of_listen(self.listen))
        if self.tensorboard:
            sets = (*sets, "tensorboard=true")
        if self.mlflow is not None:
            sets = (*sets, f"mlflow={json.dumps(self.mlflow)}")
        is_auto = self.cluster_file == AUTO
        cluster_file = None if is_auto else self.cluster_file
        read = job.read(self.job_file, sets, cluster_file)
        if self.profile and read.job.profile is None:  # a profile block of the job takes precedence over --profile
            read = job.read(self.job_file, (*sets, "profile=true"), cluster_file)
        if is_auto:
            read = planned(read, self.scheduler, self.scheduler_file, self.quiet)
        if self.overwrite and (self.resume or not self.run_dir):
            raise click.UsageError("--overwrite replaces the run in --run-dir. Pass --run-dir, and leave --resume out.")
        for option in ("--detach",) * self.detach + ("--queue",) * self.queue if not self.elsewhere else ():
            message = f"{option} needs a cluster that outlives this program. Pass its --scheduler, or set"
            raise click.UsageError(f"{message} DASK_SCHEDULER_ADDRESS.")
        return read


@click.command()
@job_options
@scheduler_options(
    "Run on the Dask cluster of this scheduler. By default a cluster of the job's size is started for it."
)
@click.option(
    "--listen",
    metavar="INTERFACE[:PORTS]",
    help="Network interface and ports between the processes of the job, e.g. eth1:9000-9100, eth1 or :9000-9100; same "
    "as cluster.listen.interface and cluster.listen.ports.",
)
@click.option(
    "--run-dir",
    metavar="URL",
    help="Directory of this run; by default a new one in the job's cluster.workspace, or in runs/.",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value=LATEST,
    metavar="[URL]",
    help="Continue from a checkpoint: of the run or step at URL, or of the run in --run-dir, or of the newest run of "
    "this job. A run that ended before its first checkpoint starts over. Pass it after JOB.yaml.",
)
@click.option("--overwrite", is_flag=True, help="Replace the run that is in --run-dir: its files are deleted.")
@init_from_option("Start with")
@click.option(
    "--detach",
    is_flag=True,
    help="Leave the job to the cluster of --scheduler when it has started, and print its id. It continues without this "
    "program, and writes its own run directory.",
)
@click.option(
    "--queue",
    is_flag=True,
    help="Queue the job if there is no room on the cluster of --scheduler: first come, first served. Without it such a "
    "job is refused.",
)
@click.option(
    "--priority",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Jobs of higher priority are first in the queue.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Record a few steps of each unit as trace.json in the run directory, and the time of each layer.",
)
@click.option(
    "--tensorboard",
    is_flag=True,
    help="Write TensorBoard event files to tensorboard/ in the run directory; same as tensorboard: true in the job. "
    "Needs pip install 'singa-dask[tensorboard]'.",
)
@click.option(
    "--mlflow",
    metavar="URI",
    help="Send params, metrics and files of the run to this MLflow server; same as mlflow: URI in the job. Needs pip "
    "install 'singa-dask[mlflow]'.",
)
@json_option
@quiet_option
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:
    """Train a net as a job file says.

    Exit codes: 0 done, 1 the job failed, 2 usage or job file, 3 no cluster, or one that is too small or lacks this
    package, 4 processes lost, 5 a loss is not finite, 128 + n stopped by signal n.
    """
    from singa_dask.cli import job
    from singa_dask.jobs.cluster import cluster_of
    from singa_dask.jobs.datasets.hosts import with_data_files
    from singa_dask.jobs.prepared_run import changes_of, prepare_run
    from singa_dask.runtime.checkpoints.lookup import find_values

    options = RunArguments(**given)
    read, quiet = options.read_job(), options.quiet
    prepared = prepare_run(
        read,
        run_dir=options.run_dir,
        resume=options.resume == LATEST or options.resume or False,
        overwrite=options.overwrite,
        init_from=options.init_from,
        elsewhere=options.elsewhere,
    )
    read, place, nets = prepared.job_file, prepared.location, prepared.nets
    conf = read.job
    job.warn(read, nets, strict=options.strict, quiet=quiet, embedded=not options.elsewhere)
    for line in changes_of(read, place) if not quiet else ():
        echo(line, err=True)
    job_run = prepared.job_run(job.command_line(ctx), options.queue, options.priority)
    directory = job_run.directory()
    with read.located():
        observers = job_run.observers()
    if options.detach:
        detach_run(job_run, options)
        return
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(Signals())
        patience, scheduler = patience_of(options.wait, quiet), options.scheduler or None
        client = stack.enter_context(
            cluster_of(conf, scheduler, options.scheduler_file, patience, options.queue, starting=hidden_from_children)
        )
        job_run = stack.enter_context(with_data_files(job_run, client))
        if not quiet:
            if options.elsewhere:
                echo(describe_cluster(client), err=True)
            echo(f"run directory: {observe.short_url(place.url)}", err=True)
            for url in () if place.checkpoint else place.init_from or conf.checkpoint_path:
                echo(f"initial values from {find_values(url)}", err=True)
        progress = stack.enter_context(
            observe.start_progress(conf.cluster.nworker_groups, conf.train_steps, quiet, run_url=place.url)
        )

        def take_driver(driver: runtime.Driver) -> None:
            signals.hand_to(driver.stop)

        result, summary = job_run.carry_out(client, directory, observers, progress.on_event, take_driver)
    tell_end(result, place.url, quiet)
    # do not show how to continue after a ConfigError, because the job would end again
    if result.state != "done" and result.exit_code != ConfigError.exit_code and not quiet:
        fails_again = result.exit_code in (1, NumericError.exit_code)
        still_runs = result.exit_code in (ClusterError.exit_code, LostUnitError.exit_code) and not result.devices
        echo(job.how_to_go_on(ctx, place.url, fails_again, still_runs), err=True)
    if options.as_json:
        echo(observe.to_json(summary))
    ctx.exit(result.exit_code)


def planned(read: JobFile, scheduler: str | None, scheduler_file: str | None, quiet: bool) -> JobFile:
    """Return a job with the fastest synchronous topology on a cluster, or on this machine; print which, and why."""
    from singa_dask.api import REGISTRIES
    from singa_dask.conf import loads
    from singa_dask.jobs.job import Job
    from singa_dask.jobs.plan import plan

    if not quiet:
        echo(MEASURING, err=True)
    found = plan(Job.of(read), client=scheduler, scheduler_file=scheduler_file)
    if not quiet:
        echo(f"chosen for {found.where}: {found.reason()}", err=True)
    return loads(found.to_yaml(), "the planned job", registries=REGISTRIES)


def sets_of_listen(listen: str | None) -> tuple[str, ...]:
    """Return the values of ``--listen`` as values of ``--set``."""
    if listen is None:
        return ()
    match = re.fullmatch(r"(?:\[(.+)\]|([^:]*))(?::([^:]*))?", listen)
    if match is None:
        message = f"--listen: expected INTERFACE[:PORTS], with an IPv6 address in brackets, got {listen!r}."
        raise click.UsageError(message)
    values = {"interface": match[1] or match[2], "ports": match[3]}
    return tuple(f"cluster.listen.{key}='{value}'" for key, value in values.items() if value)


def tell_end(result: runtime.Result, url: str, quiet: bool) -> None:
    """Print how the job ended. A failure is printed even if ``quiet`` is true."""
    for text in (result.reason, result.error.rstrip()):
        if text and (result.state == "failed" or not quiet):
            echo(text, err=True)
    if result.bad_records and not quiet:
        echo(f"skipped or replaced: {plural(result.bad_records, 'bad record')}; see {url}/bad_records.jsonl", err=True)
    if not quiet:
        n_local, n_remote = (result.bytes.get(name, 0) for name in ("local", "remote"))
        local = f", {100 * n_local / (n_local + n_remote):.0f} % of the records read locally" if n_remote else ""
        memory = f", at most {result.peak_memory / 2**20:.0f} MiB a process" if result.peak_memory else ""
        end = f"{result.state}: {plural(result.steps, 'step')} in {result.seconds:.1f} s{memory}{local}"
        echo(observe.join_if_fits(end, f"see {observe.short_url(url)}"), err=True)
        run = shlex.quote(observe.short_url(url))
        show = f"look further: singa-dask show {run}"
        # the plot command needs packages of an extra
        can_plot = find_spec("plotille") is not None
        echo(observe.join_if_fits(show, f"singa-dask plot {run}") if can_plot else show, err=True)


# -- detached jobs -----------------------------------------------------------------------------------------


def detach_run(run: runtime.JobRun, options: RunArguments) -> None:
    """Leave a run to a cluster; return when it has started there, and end the program if it is refused."""
    from singa_dask.jobs.datasets.hosts import with_data_files

    patience, quiet = patience_of(options.wait, options.quiet), options.quiet
    with Signals(), runtime.connect(options.scheduler, options.scheduler_file, patience=patience) as client:
        if patience.seconds and not run.queue:
            runtime.wait_for_room(client, runtime.plan_processes(run.conf.cluster), patience)
        if not quiet:
            echo(describe_cluster(client), err=True)
        if (hosts := runtime.remote_hosts(client, run.run_url)) and not quiet:
            message = f"warning: the run directory {run.run_url} is a local path, and there are Dask workers "
            message += f"on other hosts: {', '.join(hosts)}. If they do not share the disk, pass a URL as --run-dir."
            echo(message, err=True)
        with with_data_files(run, client, leave=True) as run:
            answer = runtime.detach(client, run)
    failure = answer.get("failure")
    if failure:
        for text in (failure["reason"], failure["error"].rstrip()):
            if text:
                echo(text, err=True)
        raise SystemExit(failure["exit_code"])
    if not quiet:
        if answer["state"] == "queued":
            why = f": {answer['reason']}" if answer["reason"] else ""
            echo(f"queued, place {answer['place']}{why}", err=True)
        echo(f"run directory: {observe.short_url(run.run_url)}", err=True)
        echo(f"progress: singa-dask attach {run.job_id}", err=True)
        echo(f"to end it with a checkpoint: singa-dask stop {run.job_id}", err=True)
    echo(observe.to_json({"id": run.job_id, "run_url": run.run_url}) if options.as_json else run.job_id)


@click.command("find-rate")
@job_options
@click.option("--low", type=float, default=1e-6, show_default=True, help="First rate.")
@click.option("--high", type=float, default=10.0, show_default=True, help="Last rate.")
@click.option("--steps", type=int, default=100, show_default=True, help="Steps from the first to the last rate.")
@overwrite_option
@output_option("-o", "--output", metavar="FILE", help="Draw the curve in a file that ends in .png or .svg.")
@json_option
def find_rate(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    low: float,
    high: float,
    steps: int,
    output: str | None,
    as_json: bool,
) -> None:
    """Propose a learning rate, from a short run in which it rises.

    One worker trains in this process, whatever the job's cluster. The proposal is a quarter of the rate with the lowest
    smoothed loss (the range test of Smith, 2017). The same job gives the same proposal.
    """
    from singa_dask import fs
    from singa_dask.cli import job
    from singa_dask.jobs.find_rate import find_rate as find
    from singa_dask.jobs.job import Job
    from singa_dask.observe.pictures.figure import draw

    suffix = PurePosixPath(output).suffix if output else ""
    if output and suffix not in (".png", ".svg"):
        raise click.UsageError(f"-o {output}: the name must end in .png, .svg.")
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict)
    echo(f"training {steps} steps while the rate rises from {low:g} to {high:g} ...", err=True)
    curve = find(Job.of(read), low=low, high=high, steps=steps)
    name = f"base_lr = {curve.rate:g}"
    if output:
        fs.write_atomic(fs.absolute(output), draw(curve.panels(), [name], "rate", suffix))
    if as_json:
        points = {key: getattr(curve, key).tolist() for key in ("rates", "losses", "smoothed")}
        echo(observe.to_json({"rate": curve.rate, **points}))
        return
    least = int(curve.smoothed.argmin())
    falls = f"from {curve.losses[0]:.4g} to {curve.smoothed[least]:.4g}"
    echo(f"the smoothed loss falls {falls}, at a rate of {curve.rates[least]:.2g}\nproposed: {name}")
    echo(f"to train with it: set it in {shlex.quote(job_file)}, as the highest rate of its schedule", err=True)
