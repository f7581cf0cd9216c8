"""The topologies to compare, their runs (one for each seed), and the conditions that end a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import click

from singa_dask import fs
from singa_dask.cli import job
from singa_dask.conf import JobConf, JobFile, Phase
from singa_dask.conf.files.cluster_file import cluster_text
from singa_dask.conf.metrics import FREQUENCIES, is_less_better, split_metric
from singa_dask.errors import ConfigError
from singa_dask.jobs.checks import count_steps
from singa_dask.jobs.prepared_run import PreparedRun, prepare_run
from singa_dask.observe.pictures.comparison import Target
from singa_dask.runtime import plan_processes
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.worker_metrics import group_rows

BUILT_IN = ("single", "sandblaster", "allreduce", "downpour", "hogwild", "hybrid")
COUNTED_IN_STEPS = ("train_steps", "disp_freq", "test_freq", "validate_freq", "checkpoint_freq")
N_SHOWN = 50
"""Number of points of a training curve, if the job sets no disp_freq."""


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


def cluster_files(named: Sequence[str]) -> list[str]:
    """Return the cluster files, or names of built-in clusters; by default all built-in ones.

    Raises
    ------
    UsageError
        Two files have the same name, or a file does not exist.
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
    """Return the number of steps that one worker group alone would run."""
    if read.job.epochs is None:
        return read.job.train_steps
    return count_steps(read, build_nets(read.job)).job.train_steps * read.job.cluster.nworker_groups


def _as_many_samples(conf: JobConf, n_steps: int) -> Iterator[str]:
    """Yield changes of a job, so that all its worker groups train on as many samples as one group alone."""
    if conf.disp_freq == 0:
        conf = conf.model_copy(update={"disp_freq": max(n_steps // N_SHOWN, 1)})
    for key in COUNTED_IN_STEPS:
        if (n_steps := getattr(conf, key)) > 0:
            yield f"{key}={max(n_steps // conf.cluster.nworker_groups, 1)}"
