"""The runs of ``compare``, one for each topology and seed, and their results."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import click
from distributed import Client
from rich.console import Console

from singa_dask import fs
from singa_dask.cli import job
from singa_dask.cli.clusters import hidden_from_children
from singa_dask.cli.printing import TextColumn, table
from singa_dask.conf import JobConf, JobFile, Phase
from singa_dask.conf.cluster_file import cluster_text
from singa_dask.conf.metrics import FREQUENCIES, is_less_better, split_metric
from singa_dask.errors import ClusterError, ConfigError, SingaError
from singa_dask.jobs.checks import count_steps
from singa_dask.jobs.cluster import find_cluster
from singa_dask.jobs.datasets.binding import readers
from singa_dask.jobs.datasets.hosts import with_data_files
from singa_dask.jobs.prepared_run import PreparedRun, prepare_run
from singa_dask.observe import new_job_id, read_summary
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.run_directory import first_command
from singa_dask.observe.pictures.comparison import Target, add_statistics, measure, rows, why_not
from singa_dask.observe.programs.observers import Observers
from singa_dask.observe.terminal.bars import BarProgress
from singa_dask.observe.terminal.progress import Progress
from singa_dask.runtime import Driver, Patience, Result, local_cluster, plan_processes, wait_for_room
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.machine import cpu_count
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.worker_metrics import group_rows
from singa_dask.shown import plural, shown
from singa_dask.version import __version__

RESULT = "compare.json"
BUILT_IN = ("single", "sandblaster", "allreduce", "downpour", "hogwild", "hybrid")
COUNTED_IN_STEPS = ("train_steps", "disp_freq", "test_freq", "validate_freq", "checkpoint_freq")
N_SHOWN = 50
"""Points of a training curve, if the job sets no disp_freq."""


class Ends(NamedTuple):
    """Conditions that end a run before its last step: a target, or a training time."""

    target: Target | None
    seconds: float | None

    def __str__(self) -> str:
        return f"until {self.target}, seconds {self.seconds}"


class Trial(NamedTuple):
    """A run: its seed, run directory and checked job."""

    seed: int
    url: str
    prepared: PreparedRun

    def what(self, ends: Ends) -> dict[str, str]:
        """Return the identity of a run in this comparison."""
        return {"given": self.prepared.job_file.given(), "ends": str(ends)}


@dataclass
class Topology:
    """The runs under one topology.

    Attributes
    ----------
    batch : int
        Samples in a step of a worker group.
    reason : str
        Why there are no trials.
    """

    name: str
    trials: list[Trial] = field(default_factory=list)
    layout: Layout | None = None
    batch: int = 1
    reason: str = ""


# -- requested clusters and topologies -----------------------------------------------------------------


def cluster_files(named: Sequence[str]) -> list[str]:
    """Return the cluster files, or names of built-in clusters; by default all built-in ones.

    Raises
    ------
    UsageError
        Two have the same name, or there is no such file.
    """
    files = list(named or BUILT_IN)
    for file in files:
        if cluster_text(file) is None and not Path(file).is_file():
            raise click.UsageError(f"--clusters {file}: no such file. Write JOB.yaml first, then --clusters.")
    twice = [name for name, n in Counter(Path(file).stem for file in files).items() if n > 1]
    if twice:
        raise click.UsageError(f"--clusters: two topologies are called {twice[0]!r}. Give each file a different name.")
    return files


def read_target(text: str, conf: JobConf) -> Target:
    """Parse ``--until``; raises a UsageError if it cannot be parsed, or the job never measures it."""
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
    """Provide the named cluster, or one for the largest topology, with its description."""
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
            size = plural(n_processes, "process", "processes")
            what = f"a cluster of {size} on one machine with {plural(cpu_count(), 'core')}"
        yield client, what


def last_cluster(run_dir: str) -> str:
    """Return the description of the cluster of the last comparison in a directory."""
    file = fs.join(run_dir, RESULT)
    return str(json.loads(fs.read_bytes(file))["cluster"]) if fs.exists(file) else "an unknown cluster"


# -- running trials ------------------------------------------------------------------------------------


def plan_topology(
    file: str, job_file: str, sets: Sequence[str], n_seeds: int, run_dir: str, elsewhere: bool
) -> Topology:
    """Read and check the job under a topology; an error becomes the ``reason`` of the topology."""
    topology = Topology(PurePosixPath(file).stem)
    try:
        read = job.read(job_file, sets, file)
        conf = read.job
        sets = [*sets, *_as_many_samples(conf, conf.train_steps if elsewhere else _n_steps(read))]
        for seed in range(conf.seed, conf.seed + n_seeds):
            url = fs.join(run_dir, topology.name, f"seed-{seed}")
            read = job.read(job_file, [*sets, f"seed={seed}"], file)
            prepared = prepare_run(read, run_dir=url, overwrite=True, elsewhere=elsewhere)
            topology.trials.append(Trial(seed, url, prepared))
    except ConfigError as error:
        topology.reason, topology.trials = str(error), []
        return topology
    topology.layout = plan_processes(conf.cluster)
    topology.batch = group_rows(topology.trials[0].prepared.nets[Phase.TRAIN])
    return topology


def _n_steps(read: JobFile) -> int:
    """Return the steps that one worker group alone would run."""
    if read.job.epochs is None:
        return read.job.train_steps
    return count_steps(read, build_nets(read.job)).job.train_steps * read.job.cluster.nworker_groups


def _as_many_samples(conf: JobConf, n_steps: int) -> Iterator[str]:
    """Yield changes by which all worker groups together train on as many samples as one group alone."""
    if conf.disp_freq == 0:
        conf = conf.model_copy(update={"disp_freq": max(n_steps // N_SHOWN, 1)})
    for key in COUNTED_IN_STEPS:
        if (n_steps := getattr(conf, key)) > 0:
            yield f"{key}={max(n_steps // conf.cluster.nworker_groups, 1)}"


def is_done(trial: Trial, ends: Ends) -> bool:
    """Return whether a run is done already; raises a ConfigError if it belongs to another comparison."""
    if read_summary(trial.url).get("state") != "done":
        return False
    command = first_command(trial.url)
    if {key: command.get(key) for key in ("given", "ends")} != trial.what(ends):
        raise ConfigError(
            f"{trial.url}: a run of another comparison is there. Expected the same job, topology, --until and "
            "--seconds. Choose another --run-dir."
        )
    return True


class UnmeasuredError(ConfigError):
    """No run measures the target."""


class Stops:
    """Passes signals to the current run, and keeps ``signal_name``, the first one, empty if there was none."""

    def __init__(self) -> None:
        self.signal_name = ""
        self._driver: Driver | None = None

    def stop(self, signal_name: str) -> None:
        """End the comparison; at a second call end its run at once. Safe in a signal handler."""
        self.signal_name = self.signal_name or signal_name
        if self._driver is not None:
            self._driver.stop(signal_name)

    def follow(self, driver: Driver) -> None:
        """Pass signals to a driver from now on."""
        self._driver = driver
        if self.signal_name:
            driver.stop(self.signal_name)


class _Watch:
    """Ends a run when it reaches its target or time limit; ``reason`` is why, empty if it did not end it."""

    def __init__(self, ends: Ends) -> None:
        self.reason = ""
        self.driver: Driver | None = None
        self._ends = ends
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def on_event(self, event: dict[str, Any]) -> None:
        """Check the metrics of the first worker group; start the timer at the first event."""
        if event["event"] not in ("metrics", "steps"):
            return
        if self._timer is None and self._ends.seconds is not None:
            self._timer = threading.Timer(self._ends.seconds, self._end, [f"trained for {self._ends.seconds:g} s"])
            self._timer.daemon = True
            self._timer.start()
        target = self._ends.target
        if target and (event["event"], event.get("phase"), event.get("group")) == ("metrics", target.phase, 0):
            metrics = layer_metrics(event)
            if target.name not in metrics:
                known = ", ".join(metrics) or "none"
                raise UnmeasuredError(
                    f"--until {target.metric}: the {target.phase} net has no metric {target.name!r}. Known: {known}."
                )
            if target.is_reached(metrics[target.name]):
                self._end(f"reached {target} at step {event['step']}")

    def _end(self, reason: str) -> None:
        with self._lock:
            if not self.reason and self.driver is not None:
                self.reason = reason
                self.driver.stop(by="compare")

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Bars(BarProgress):
    """Progress bars of a run's worker groups, removed at its end."""

    def __init__(self, console: Console, conf: JobConf) -> None:
        super().__init__(console, conf.cluster.nworker_groups, conf.train_steps)
        self.bars.live.transient = True

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "steps" or (event["event"], event.get("phase")) == ("metrics", "train"):
            super().on_event(event)


def run_trial(
    trial: Trial, client: Client, ends: Ends, stops: Stops, arguments: Sequence[str], console: Console
) -> None:
    """Run a trial, and write its run directory, with progress bars on a terminal.

    Raises
    ------
    SingaError
        The job does not fit the cluster, a dataset is missing, or the job could not be started.
    """
    run, conf = trial.prepared.job_run(arguments), trial.prepared.job_file.job
    recording = {**run.recording, "command": {**run.recording["command"], **trial.what(ends)}}
    job_id = new_job_id(f"{conf.name}-{PurePosixPath(trial.url).parent.name}")
    watch = _Watch(ends)

    def on_event(event: dict[str, Any]) -> None:
        progress.on_event(event)
        watch.on_event(event)

    def take_driver(driver: Driver) -> None:
        watch.driver = driver
        stops.follow(driver)

    def judge(result: Result) -> Result:
        """Count a run that has reached its target or time limit as done."""
        if watch.reason and result.state == "stopped" and not stops.signal_name:
            return replace(result, state="done", exit_code=0, reason=watch.reason)
        return result

    progress = _Bars(console, conf) if console.is_interactive and not console.quiet else Progress()
    try:
        install_jobs(client)
        with with_data_files(replace(run, recording=recording, job_id=job_id), client) as run, progress:
            run.carry_out(client, run.directory(), Observers([]), on_event, take_driver, judge=judge)
    finally:
        watch.close()


def run_all(
    topologies: Sequence[Topology],
    missing: set[str],
    client: Client,
    patience: Patience,
    ends: Ends,
    stops: Stops,
    arguments: Sequence[str],
    console: Console,
) -> dict[str, str]:
    """Run the missing trials; return, by run directory, why a run has no result."""
    reasons: dict[str, str] = {}
    unfit: dict[str, str] = {}
    # run all topologies of a seed before the next seed, so that other load affects all topologies alike
    trials = [(trial.seed, i, topology, trial) for i, topology in enumerate(topologies) for trial in topology.trials]
    ordered = [each[2:] for each in sorted(trials, key=lambda each: each[:2]) if each[3].url in missing]
    for number, (topology, trial) in enumerate(ordered, 1):
        if stops.signal_name or topology.name in unfit:
            reasons[trial.url] = unfit.get(topology.name) or f"stopped by {stops.signal_name}"
            continue
        what = f"{number} of {len(ordered)}: {topology.name}, seed {trial.seed} ..."
        console.print(what, end="\n" if console.is_interactive else " ", markup=False, soft_wrap=True)
        try:
            # wait for free workers before datasets are written for the trial
            if (patience.seconds or readers(trial.prepared.job_file.job)) and topology.layout is not None:
                wait_for_room(client, topology.layout, patience)
            run_trial(trial, client, ends, stops, arguments, console)
        except UnmeasuredError:
            console.print()
            raise
        except SingaError as error:
            reasons[trial.url] = str(error)
            if isinstance(error, ClusterError):
                unfit[topology.name] = str(error)
        console.print(shown(outcome(topology, trial, ends, reasons.get(trial.url, ""))), markup=False, soft_wrap=True)
    return reasons


def outcome(topology: Topology, trial: Trial, ends: Ends, reason: str) -> str:
    """Describe how a run has ended, in a line."""
    if reason:
        return reason.partition(". ")[0]  # the whole reason is shown at the end
    run = measure(trial.url, topology.batch, ends.target)
    if run["state"] != "done":
        return f"{run['state']}: {run['reason']}"
    metrics = [f"{name} {value:.4g}" for name, value in run["final"].items() if value is not None]
    missed = f"; {ends.target} not reached" if ends.target and not run["target"] else ""
    return f"{run['seconds']:.1f} s, {', '.join(metrics[:2])}{missed}"


# -- results ----------------------------------------------------------------------------------


def describe(
    conf: JobConf,
    topologies: Sequence[Topology],
    ends: Ends,
    reasons: dict[str, str],
    where: str,
    run_dir: str,
) -> dict[str, Any]:
    """Return the comparison for the report and ``compare.json``."""
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
    units = ""
    if topology.layout is not None:
        cluster = topology.layout.cluster
        units = f"{cluster.nworker_groups} x {cluster.nworkers_per_group} workers, "
        units += f"{cluster.nserver_groups} x {cluster.nservers_per_group} servers"
    described = {
        "name": topology.name,
        "reason": topology.reason,
        "units": units,
        "runs": runs,
    }
    add_statistics(described)
    return described


def table_lines(comparison: Mapping[str, Any], width: int) -> Iterator[str]:
    """Yield a table of the medians, with as many columns as fit, and the reasons of missing runs."""
    cells = rows(comparison)
    columns = [
        TextColumn(title, [row[title].partition(" (")[0] for row in cells], rank, right=rank > 0)
        for rank, title in enumerate(cells[0])
    ]
    yield from table(columns, width)
    if len(comparison["seeds"]) > 1:
        yield f"Medians of {len(comparison['seeds'])} seeds; the report has more."
    for topology in comparison["topologies"]:
        for what, why in why_not(topology):
            yield shown(f"{topology['name']}, {what}: {why}")
