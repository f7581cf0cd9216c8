"""The runs of a comparison: a job under one topology with one seed each, and how each is run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from distributed import Client
from rich.console import Console

from singa_dask.cli import job
from singa_dask.conf import JobConf, JobFile, Phase
from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.jobs.checking import check, complete, count_steps, refuse_missing_gpus
from singa_dask.jobs.datasets.binding import check_names
from singa_dask.jobs.datasets.hosts import placed_job
from singa_dask.net import NeuralNet
from singa_dask.observe import BarProgress, Progress, RunDirectory, first_command, new_job_id, read_summary
from singa_dask.observe.comparison import Target
from singa_dask.observe.progress import layer_metrics
from singa_dask.runtime import Driver, Layout, Result, plan_processes
from singa_dask.runtime.planning.nets import build_nets

COUNTED_IN_STEPS = ("train_steps", "disp_freq", "test_freq", "validate_freq", "checkpoint_freq")
N_SHOWN = 50
"""Points of the curves of training, if the job shows none."""


@dataclass(frozen=True)
class Ends:
    """When a run ends before its last step.

    Attributes
    ----------
    target : Target or None
    seconds : float or None
        Time of training.
    """

    target: Target | None
    seconds: float | None

    def __str__(self) -> str:
        return f"until {self.target}, seconds {self.seconds}"


@dataclass(frozen=True)
class Trial:
    """One run.

    Attributes
    ----------
    seed : int
    url : str
        Run directory.
    read : JobFile
    """

    seed: int
    url: str
    read: JobFile

    @property
    def conf(self) -> JobConf:
        """The job."""
        return self.read.job


@dataclass
class Topology:
    """The runs under one topology.

    Attributes
    ----------
    name : str
    trials : list of Trial
    layout : Layout or None
    batch : int
        Samples of one step of a worker group.
    reason : str
        Why there are no trials.
    """

    name: str
    trials: list[Trial] = field(default_factory=list)
    layout: Layout | None = None
    batch: int = 1
    reason: str = ""


def plan_topology(
    file: str, job_file: str, sets: Sequence[str], n_seeds: int, run_dir: str, *, check_sources: bool
) -> Topology:
    """Read and check the job under one topology; what is wrong with both together is the reason of the topology."""
    topology = Topology(PurePosixPath(file).stem)
    try:
        read = job.read(job_file, sets, file)
        first = read.job
        sets = [*sets, *_as_many_samples(first, _n_steps(read) if check_sources else first.train_steps)]
        for seed in range(first.seed, first.seed + n_seeds):
            read = complete(job.read(job_file, [*sets, f"seed={seed}"], file))
            topology.trials.append(Trial(seed, fs.join(run_dir, topology.name, f"seed-{seed}"), read))
        nets = check(topology.trials[0].read, check_sources=check_sources)
        if check_sources:
            check_names(topology.trials[0].read, ())
            refuse_missing_gpus(topology.trials[0].read)
    except ConfigError as error:
        topology.reason, topology.trials = str(error), []
        return topology
    topology.layout = plan_processes(first.cluster)
    topology.batch = _batch(nets[Phase.TRAIN])
    return topology


def _n_steps(read: JobFile) -> int:
    """Return the steps that one worker group would do alone."""
    if read.job.epochs is None:
        return read.job.train_steps
    return count_steps(read, build_nets(read.job)).job.train_steps * read.job.cluster.nworker_groups


def _as_many_samples(conf: JobConf, n_steps: int) -> Iterator[str]:
    """Yield the changes by which worker groups train together on as many samples as one would alone.

    An epoch is as many for any number of groups.
    """
    if conf.disp_freq == 0:
        conf = conf.model_copy(update={"disp_freq": max(n_steps // N_SHOWN, 1)})
    for key in COUNTED_IN_STEPS:
        if (n_steps := getattr(conf, key)) > 0:
            yield f"{key}={max(n_steps // conf.cluster.nworker_groups, 1)}"


def _batch(net: NeuralNet) -> int:
    reader = next(layer for layer in net.all_layers if layer.traits.is_input)
    return round(reader.features[0].shape[0] * reader.site.batch_shard.count / net.context.weight)


def is_done(trial: Trial, ends: Ends) -> bool:
    """Return whether a run was done before.

    Raises
    ------
    ConfigError
        It was another one.
    """
    if read_summary(trial.url).get("state") != "done":
        return False
    command = first_command(trial.url)
    if {key: command.get(key) for key in ("given", "ends")} != _what(trial, ends):
        raise ConfigError(
            f"{trial.url}: a run of another comparison is there. Expected the same job, topology, --until and "
            "--seconds. Choose another --run-dir."
        )
    return True


def _what(trial: Trial, ends: Ends) -> dict[str, str]:
    """Return what makes a run the one of this comparison."""
    return {"given": trial.read.given(), "ends": str(ends)}


class UnmeasuredError(ConfigError):
    """No run measures the target."""


class Stops:
    """Passes signals on to the run that goes on, and remembers the first one.

    Attributes
    ----------
    signal_name : str
        Empty if there was none.
    """

    def __init__(self) -> None:
        self.signal_name = ""
        self._driver: Driver | None = None

    def stop(self, signal_name: str) -> None:
        """End the comparison; if called again, end its run at once. Safe in a signal handler."""
        self.signal_name = self.signal_name or signal_name
        if self._driver is not None:
            self._driver.stop(signal_name)

    def follow(self, driver: Driver) -> None:
        """Let a driver act on signals from now on."""
        self._driver = driver
        if self.signal_name:
            driver.stop(self.signal_name)


class _Watch:
    """Ends one run when it has reached its target or its time is over.

    Attributes
    ----------
    reason : str
        Why it has ended the run; empty if it has not.
    """

    def __init__(self, ends: Ends) -> None:
        self.reason = ""
        self.driver: Driver | None = None
        self._ends = ends
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def on_event(self, event: dict[str, Any]) -> None:
        """Look at the metrics of the first worker group; begin to measure the time."""
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
                self.driver.stop()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Bars(BarProgress):
    """Bars of the worker groups of one run, which vanish when it ends."""

    def __init__(self, console: Console, conf: JobConf) -> None:
        super().__init__(console, conf.cluster.nworker_groups, conf.train_steps)
        self.bars.live.transient = True

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "steps" or (event["event"], event.get("phase")) == ("metrics", "train"):
            super().on_event(event)


def run_trial(
    trial: Trial, client: Client, ends: Ends, stops: Stops, command: dict[str, Any], console: Console
) -> Result:
    """Run a trial to its end, and write its run directory; on a terminal with bars meanwhile.

    Raises
    ------
    SingaError
        The job does not fit the cluster, a dataset is not there, or the job could not be started.
    """
    replaces = fs.exists(fs.join(trial.url, "job.yaml"))
    command = {**command, "time": time.time(), **_what(trial, ends)}
    watch = _Watch(ends)
    with (
        placed_job(trial.conf, client) as (conf, datasets),
        RunDirectory(
            trial.url, trial.read.text, trial.read.resolved(), replaces=replaces, command=command
        ) as directory,
    ):

        def on_event(event: dict[str, Any]) -> None:
            directory.on_event(event)
            progress.on_event(event)
            watch.on_event(event)

        job_id = new_job_id(f"{trial.conf.name}-{PurePosixPath(trial.url).parent.name}")
        watch.driver = Driver(conf, client, run_url=trial.url, on_event=on_event, job_id=job_id, datasets=datasets)
        stops.follow(watch.driver)
        progress = _Bars(console, trial.conf) if console.is_interactive and not console.quiet else Progress()
        try:
            with progress:
                result = watch.driver.run()
        finally:
            watch.close()
        if watch.reason and result.state == "stopped" and not stops.signal_name:
            result = replace(result, state="done", exit_code=0, reason=watch.reason)
        directory.finish(result.summary())
    return result
