"""``run``: read a job, find or start a cluster, let the driver run it, write down what happens."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import click
from distributed import Client

from singa_dask import __version__
from singa_dask.cli import job
from singa_dask.cli.resume import Place, choose_place, given_arguments, how_to_go_on
from singa_dask.cli.signals import Signals, hidden_from_children
from singa_dask.cli.waiting import patience_of
from singa_dask.conf import JobConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.observe import RunDirectory, join_if_fits, short_url, start_progress, to_json
from singa_dask.runtime import Driver, Patience, Result, connect, embedded_cluster, plan_processes, wait_for_room
from singa_dask.runtime.checkpoints.lookup import find_values

__all__ = ["run"]


def run(
    ctx: click.Context,
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    run_dir: str | None,
    resume: str | None,
    overwrite: bool,
    init_from: tuple[str, ...],
    as_json: bool,
    quiet: bool,
) -> None:
    """Train a net as a job file says."""
    if resume and init_from:
        raise click.UsageError("--resume takes all from one checkpoint, and --init-from only values. Give one of them.")
    read = job.read(job_file, sets, cluster_file)
    conf = read.job
    if not conf.trains:
        message = "there is nothing to train: no updater, no train_steps."
        message += " For tests say singa-dask test, for text singa-dask sample."
        raise read.locate(ConfigError(Problem((), message)))
    if overwrite and (resume or not run_dir):
        raise click.UsageError("--overwrite replaces the run in --run-dir. Give that, and no --resume.")
    place = choose_place(conf, run_dir, resume, overwrite, init_from)
    elsewhere = bool(scheduler or scheduler_file)
    read = job.complete(read, place.init_from)
    conf = read.job
    nets = job.check(read, resume=place.checkpoint, init_from=place.init_from, check_sources=not elsewhere)
    if not elsewhere:
        job.refuse_missing_gpus(read)
    job.warn(read, nets, strict=strict, quiet=quiet, embedded=not elsewhere)
    directory = RunDirectory(
        place.url,
        read.text,
        read.resolved(),
        place.goes_on,
        replaces=place.replaces,
        steps=place.steps(),
        command=describe_command(ctx, place),
    )
    with contextlib.ExitStack() as stack:
        signals = stack.enter_context(Signals())
        patience = patience_of(wait, quiet)
        client = stack.enter_context(choose_cluster(conf, scheduler, scheduler_file, patience))
        if not quiet:
            tell_start(conf, place)
        stack.enter_context(directory)
        progress = stack.enter_context(
            start_progress(conf.cluster.nworker_groups, conf.train_steps, quiet, run_url=place.url)
        )

        def on_event(event: dict[str, Any]) -> None:
            directory.on_event(event)
            progress.on_event(event)

        driver = Driver(
            conf,
            client,
            run_url=place.url,
            on_event=on_event,
            job_id=place.job_id,
            resume=place.checkpoint,
            init_from=place.init_from,
        )
        signals.hand_to(driver)
        result = driver.run()
        summary = directory.finish(result.summary())
    tell_end(result, place.url, quiet)
    if not quiet:
        job.show_outputs(job.outputs(nets.values()))
    # what is wrong with the job would end it again
    if result.state != "done" and result.exit_code != ConfigError.exit_code and not quiet:
        click.echo(how_to_go_on(ctx, place.url), err=True)
    if as_json:
        click.echo(to_json(summary))
    ctx.exit(result.exit_code)


def describe_command(ctx: click.Context, place: Place) -> dict[str, Any]:
    """Return what the run directory records about this command."""
    return {
        "time": time.time(),
        "arguments": [*ctx.command_path.split(), *given_arguments(ctx)],
        "directory": os.getcwd(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
        "init_from": [os.path.abspath(url) if "://" not in url else url for url in place.init_from],
        "resume": place.checkpoint,
    }


@contextlib.contextmanager
def choose_cluster(
    conf: JobConf, scheduler: str | None, scheduler_file: str | None, patience: Patience
) -> Iterator[Client]:
    """Use the named cluster once there is room for the job, or start one of its size for this run."""
    layout = plan_processes(conf.cluster)
    with contextlib.ExitStack() as stack:
        if scheduler or scheduler_file:
            named: dict[str, Any] = {"scheduler_file": scheduler_file} if scheduler_file else {"address": scheduler}
            client = stack.enter_context(connect(**named, patience=patience))
            if patience.seconds:
                wait_for_room(client, layout, patience)
        else:
            with hidden_from_children():
                client = stack.enter_context(embedded_cluster(layout))
        yield client


def tell_start(conf: JobConf, place: Place) -> None:
    """Print where the run is written, and where its initial values come from."""
    click.echo(f"run directory: {short_url(place.url)}", err=True)
    for url in () if place.checkpoint else place.init_from or conf.checkpoint_path:
        click.echo(f"initial values from {find_values(url)}", err=True)
    steps = place.steps().values()
    if steps and min(steps) >= conf.train_steps:
        message = f"train_steps is {conf.train_steps}, and the checkpoint is of step {min(steps)}: no step is left."
        click.echo(f"{message} Set train_steps higher to train on.", err=True)


def tell_end(result: Result, url: str, quiet: bool) -> None:
    """Print how the job ended; a failure even when quiet."""
    for text in (result.reason, result.error.rstrip()):
        if text and (result.state == "failed" or not quiet):
            click.echo(text, err=True)
    if result.bad_records and not quiet:
        click.echo(f"{result.bad_records} bad records were passed over; see {url}/bad_records.jsonl", err=True)
    if not quiet:
        n_local, n_remote = (result.bytes.get(name, 0) for name in ("local", "remote"))
        local = f", {100 * n_local / (n_local + n_remote):.0f} % of the records read locally" if n_remote else ""
        memory = f", at most {result.peak_memory / 2**20:.0f} MiB a process" if result.peak_memory else ""
        end = f"{result.state}: {result.steps} steps in {result.seconds:.1f} s{memory}{local}"
        click.echo(join_if_fits(end, f"see {short_url(url)}"), err=True)
