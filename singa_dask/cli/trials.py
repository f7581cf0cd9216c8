"""The runs of ``compare``, one after the other on a cluster, each with its target or time limit."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from distributed import Client
from rich.console import Console

from singa_dask.cli.clusters import hidden_from_children
from singa_dask.cli.topologies import Ends, Topology, Trial
from singa_dask.conf import JobConf
from singa_dask.errors import ClusterError, ConfigError, SingaError
from singa_dask.jobs.cluster import find_cluster
from singa_dask.jobs.datasets.binding import readers
from singa_dask.jobs.datasets.hosts import with_data_files
from singa_dask.observe import new_job_id, read_summary
from singa_dask.observe.event_texts import layer_metrics
from singa_dask.observe.files.run_directory import first_command
from singa_dask.observe.pictures.comparison import measure
from singa_dask.observe.programs.observers import Observers
from singa_dask.observe.terminal.bars import BarProgress
from singa_dask.observe.terminal.progress import Progress
from singa_dask.runtime import Driver, Patience, Result, local_cluster, wait_for_room
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.client.job_cluster import install_jobs
from singa_dask.runtime.planning.machine import cpu_count
from singa_dask.shown import plural, shown


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
    """Passes signals to the current run. ``signal_name`` is the first signal, empty before any signal."""

    def __init__(self) -> None:
        self.signal_name = ""
        self._driver: Driver | None = None

    def stop(self, signal_name: str) -> None:
        """End the comparison; a second call ends its current run without waiting. Safe in a signal handler."""
        self.signal_name = self.signal_name or signal_name
        if self._driver is not None:
            self._driver.stop(signal_name)

    def follow(self, driver: Driver) -> None:
        """Pass signals to a driver from now on."""
        self._driver = driver
        if self.signal_name:
            driver.stop(self.signal_name)


class _Watch:
    """Ends a run at its target or time limit. ``reason`` says which; it is empty if neither was reached."""

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
