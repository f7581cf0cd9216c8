"""``compare``: run one job under several topologies, one after the other, and write a report."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from distributed import Client
from rich.console import Console

from singa_dask.cli import job
from singa_dask.cli.clusters import patience_of
from singa_dask.cli.echo import echo
from singa_dask.cli.options import CPU
from singa_dask.cli.resume import command_line
from singa_dask.cli.signals import Signals, hidden_from_children
from singa_dask.cli.trials import Ends, Stops, Topology, Trial, UnmeasuredError, is_done, plan_topology, run_trial
from singa_dask.conf import ClusterConf, JobConf
from singa_dask.conf.jobfile import cluster_text
from singa_dask.conf.watched import FREQUENCIES, is_less_better, split_metric
from singa_dask.data import fs
from singa_dask.errors import ClusterError, SingaError
from singa_dask.jobs.clusters import find_cluster
from singa_dask.jobs.datasets.binding import readers
from singa_dask.jobs.preparing import describe_command
from singa_dask.observe import new_job_id, short_url, to_json
from singa_dask.observe.comparison import Target, add_statistics, measure, show_table
from singa_dask.observe.comparison_page import write_page
from singa_dask.redaction import redact
from singa_dask.runtime import Patience, local_cluster, present_workers, wait_for_room
from singa_dask.runtime.planning.resources import cpu_count
from singa_dask.version import __version__

RESULT = "compare.json"
BUILT_IN = ("single", "sandblaster", "allreduce", "downpour", "hogwild", "hybrid")


def compare(
    ctx: click.Context,
    job_file: str,
    more_clusters: tuple[str, ...],
    clusters: tuple[str, ...],
    seeds: int,
    until: str | None,
    seconds: float | None,
    output: str | None,
    run_dir: str | None,
    sets: tuple[str, ...],
    cpu: bool,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare topologies."""
    files = cluster_files((*clusters, *more_clusters))
    sets = (*sets, CPU) if cpu else sets
    conf = job.read(job_file, sets, None).job
    if not conf.trains:
        raise click.UsageError(f"{job_file}: there is nothing to train: no updater, no epochs, no train_steps.")
    ends = Ends(read_target(until, conf) if until else None, seconds)
    run_dir = fs.absolute(run_dir or fs.join("runs", new_job_id(f"compare-{conf.name}")))
    elsewhere = bool(scheduler or scheduler_file)
    topologies = [plan_topology(file, job_file, sets, seeds, run_dir, check_sources=not elsewhere) for file in files]
    missing = {trial.url for each in topologies for trial in each.trials if not is_done(trial, ends)}
    stops, console = Stops(), Console(stderr=True, highlight=False, quiet=quiet)
    if missing:
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(Signals())
            patience = patience_of(wait, quiet)
            client, where = stack.enter_context(choose_cluster(topologies, scheduler, scheduler_file, patience))
            signals.hand_to(stops.stop)
            command = describe_command(command_line(ctx))
            reasons = run_all(topologies, missing, client, patience, ends, stops, command, console)
    else:
        reasons, where = {}, last_cluster(run_dir)
    comparison = describe(conf, topologies, ends, reasons, where, run_dir)
    output = fs.absolute(output or fs.join(run_dir, "report.html"))
    fs.write_atomic(fs.join(run_dir, RESULT), to_json(comparison, indent=1).encode())
    fs.write_atomic(output, redact(write_page(comparison)).encode())
    show_table(comparison, console)
    console.print(f"report: {short_url(output)}; runs: {short_url(run_dir)}", soft_wrap=True, markup=False)
    if as_json:
        echo(to_json(without_curves(comparison)))
    if stops.signal_name:
        ctx.exit(128 + signal.Signals[stops.signal_name])
    ctx.exit(0 if any(run["state"] == "done" for each in comparison["topologies"] for run in each["runs"]) else 1)


# -- what is asked for ---------------------------------------------------------------------------------


def cluster_files(given: Sequence[str]) -> list[str]:
    """Return the cluster files, or names of built-in ones, each with a name of its own.

    Raises
    ------
    UsageError
        Two have the same name, or there is no such file.
    ConfigError
        There is neither a file nor a built-in cluster of a name.
    """
    files = list(given or BUILT_IN)
    for file in files:
        if cluster_text(file) is None and not Path(file).is_file():
            raise click.UsageError(f"--clusters {file}: no such file. Write JOB.yaml first, then --clusters.")
    twice = [name for name, n in Counter(Path(file).stem for file in files).items() if n > 1]
    if twice:
        raise click.UsageError(f"--clusters: two topologies are called {twice[0]!r}. Give each file a name of its own.")
    return files


def read_target(text: str, conf: JobConf) -> Target:
    """Read ``--until``.

    Raises
    ------
    UsageError
        It cannot be read, or the job never measures it.
    """
    metric, _, number = text.partition("=")
    phases = {phase: all(getattr(conf, key) != 0 for key in FREQUENCIES[phase]) for phase in ("test", "validation")}
    phases["train"] = True
    phase, name = split_metric(metric)
    if metric.startswith("train."):
        phase, name = "train", metric.removeprefix("train.")
    if not phase:
        phase, name = next(each for each, measured in phases.items() if measured), metric
    try:
        value = float(number)
    except ValueError:
        raise click.UsageError(f"--until {text}: expected METRIC=VALUE, e.g. accuracy=0.95.") from None
    less = is_less_better(name, "auto")
    if less is None:
        raise click.UsageError(f"--until {text}: expected a metric that ends in accuracy, loss or error, got {name!r}.")
    if not phases[phase]:
        raise click.UsageError(f"--until {text}: the job never measures it. Set {' and '.join(FREQUENCIES[phase])}.")
    return Target(f"{phase}.{name}", value, less)


@contextlib.contextmanager
def choose_cluster(
    topologies: Sequence[Topology], scheduler: str | None, scheduler_file: str | None, patience: Patience
) -> Iterator[tuple[Client, str]]:
    """Use the named cluster, or start one that has room for the largest topology; describe it, too."""
    with contextlib.ExitStack() as stack:
        if scheduler or scheduler_file:
            client = stack.enter_context(find_cluster(scheduler, scheduler_file, patience))
            n_workers = len(present_workers(client))
            what = f"a cluster of {n_workers} Dask workers"
        else:
            layouts = [each.layout for each in topologies if each.layout is not None]
            n_processes = max(len(layout.processes) for layout in layouts)
            n_threads = max(layout.n_threads for layout in layouts)
            with hidden_from_children():
                client = stack.enter_context(local_cluster(n_processes, n_threads, processes=n_processes > 1))
            what = f"a cluster of {n_processes} processes on one machine with {cpu_count()} cores"
        yield client, what


def last_cluster(run_dir: str) -> str:
    """Return what the last comparison in a directory says of its cluster."""
    file = fs.join(run_dir, RESULT)
    return str(json.loads(fs.read_bytes(file))["cluster"]) if fs.exists(file) else "a cluster that is not known"


# -- the runs ------------------------------------------------------------------------------------------


def run_all(
    topologies: Sequence[Topology],
    missing: set[str],
    client: Client,
    patience: Patience,
    ends: Ends,
    stops: Stops,
    command: dict[str, Any],
    console: Console,
) -> dict[str, str]:
    """Run what is missing; return, by run directory, why a run has no result."""
    reasons: dict[str, str] = {}
    unfit: dict[str, str] = {}
    # seed by seed: what else the machine does meanwhile meets all topologies
    trials = [(trial.seed, i, topology, trial) for i, topology in enumerate(topologies) for trial in topology.trials]
    ordered = [each[2:] for each in sorted(trials, key=lambda each: each[:2]) if each[3].url in missing]
    for number, (topology, trial) in enumerate(ordered, 1):
        if stops.signal_name or topology.name in unfit:
            reasons[trial.url] = unfit.get(topology.name) or f"stopped by {stops.signal_name}"
            continue
        what = f"{number} of {len(ordered)}: {topology.name}, seed {trial.seed} ..."
        console.print(what, end="\n" if console.is_interactive else " ", markup=False, soft_wrap=True)
        try:
            # before datasets are written for it, too
            if (patience.seconds or readers(trial.conf)) and topology.layout is not None:
                wait_for_room(client, topology.layout, patience)
            run_trial(trial, client, ends, stops, command, console)
        except UnmeasuredError:
            console.print()
            raise
        except SingaError as error:
            reasons[trial.url] = str(error)
            if isinstance(error, ClusterError):
                unfit[topology.name] = str(error)
        console.print(redact(outcome(topology, trial, ends, reasons.get(trial.url, ""))), markup=False, soft_wrap=True)
    return reasons


def outcome(topology: Topology, trial: Trial, ends: Ends, reason: str) -> str:
    """Describe in a line how a run has ended."""
    if reason:
        return reason.partition(". ")[0]  # all of it is shown at the end
    found = measure(trial.url, topology.batch, ends.target)
    if found["state"] != "done":
        return f"{found['state']}: {found['reason']}"
    metrics = {name: value for name, value in found["final"].items() if value is not None}
    shown = ", ".join(f"{name} {value:.4g}" for name, value in list(metrics.items())[:2])
    missed = f"; {ends.target} not reached" if ends.target and not found["target"] else ""
    return f"{found['seconds']:.1f} s, {shown}{missed}"


# -- what it comes to ----------------------------------------------------------------------------------


def describe(
    conf: JobConf,
    topologies: Sequence[Topology],
    ends: Ends,
    reasons: dict[str, str],
    where: str,
    run_dir: str,
) -> dict[str, Any]:
    """Return the whole comparison, for the report and ``compare.json``."""
    target = ends.target
    seeds = sorted({trial.seed for each in topologies for trial in each.trials})
    return {
        "job": conf.name,
        "version": __version__,
        "time": time.time(),
        "cluster": where,
        "seeds": seeds or [conf.seed],
        "target": {"metric": target.metric, "value": target.value, "text": str(target)} if target else None,
        "limit_s": ends.seconds,
        "topologies": [_describe_topology(each, ends, reasons, run_dir) for each in topologies],
    }


def _describe_topology(topology: Topology, ends: Ends, reasons: dict[str, str], run_dir: str) -> dict[str, Any]:
    runs = []
    for trial in topology.trials:
        run = {"seed": trial.seed, "path": trial.url.removeprefix(f"{run_dir}/")}
        run |= measure(trial.url, topology.batch, ends.target)
        if trial.url in reasons:
            run |= {"state": "not run", "reason": reasons[trial.url]}
        runs.append(run)
    cluster = topology.layout.cluster if topology.layout else None
    described = {
        "name": topology.name,
        "reason": topology.reason,
        "units": describe_units(cluster) if cluster else "",
        "runs": runs,
    }
    add_statistics(described)
    return described


def describe_units(cluster: ClusterConf) -> str:
    """Return groups x units of workers and of servers."""
    workers = f"{cluster.nworker_groups} x {cluster.nworkers_per_group} workers"
    return f"{workers}, {cluster.nserver_groups} x {cluster.nservers_per_group} servers"


def without_curves(comparison: dict[str, Any]) -> dict[str, Any]:
    """Return a comparison without the points of its curves."""
    topologies = [
        {**each, "runs": [{key: value for key, value in run.items() if key != "curves"} for run in each["runs"]]}
        for each in comparison["topologies"]
    ]
    return {**comparison, "topologies": topologies}
