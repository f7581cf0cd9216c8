"""Options that several verbs share. Imports no other room, so that any verb can use them cheaply."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import click

from singa_dask.cli.loading import load

CPU = "--cpu"
"""Placeholder for the changes of this option among those of ``--set``."""
LATEST = "latest"
"""Value of ``--resume`` without an argument."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print the summary as the last line of stdout.")


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the job file, the options that change what it says, and ``--strict``."""

    @functools.wraps(command)
    def with_cpu(*, sets: tuple[str, ...], cpu: bool, **given: Any) -> Any:
        return command(sets=(*sets, CPU) if cpu else sets, **given)

    decorated: Callable[..., Any] = with_cpu
    for decorate in (
        click.option(
            "--cpu", is_flag=True, help="Compute on the CPU whatever the job says; for one with gpu or cuDNN."
        ),
        click.option("--strict", is_flag=True, help="Treat warnings on the job file as errors."),
        click.option(
            "--cluster",
            "cluster_file",
            metavar="FILE",
            help="Take the cluster block from this file, or from one that is built in: allreduce, downpour, hogwild, "
            "hybrid, sandblaster, single.",
        ),
        click.option(
            "--set",
            "sets",
            metavar="KEY=VALUE",
            multiple=True,
            help="Change a value, e.g. updater.learning_rate.base_lr=0.1 or "
            "neuralnet.layer[fc1].innerproduct_conf.num_output=64. Repeatable.",
        ),
        click.argument("job_file", metavar="JOB.yaml"),
    ):
        decorated = decorate(decorated)
    return decorated


def observer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command with `job_options` those that set the keys of observers."""

    @functools.wraps(command)
    def with_observers(*, sets: tuple[str, ...], tensorboard: bool, mlflow: str | None, **given: Any) -> Any:
        if tensorboard:
            sets = (*sets, "tensorboard=true")
        if mlflow is not None:
            sets = (*sets, f"mlflow={json.dumps(mlflow)}")
        return command(sets=sets, **given)

    decorated: Callable[..., Any] = with_observers
    for decorate in (
        click.option(
            "--mlflow",
            metavar="URI",
            help="Send params, metrics and files of the run to this MLflow server, as mlflow: URI in the job does. "
            "Needs pip install 'singa-dask[mlflow]'.",
        ),
        click.option(
            "--tensorboard",
            is_flag=True,
            help="Write event files of TensorBoard to tensorboard/ in the run directory, as tensorboard: true in the "
            "job does. Needs pip install 'singa-dask[tensorboard]'.",
        ),
    ):
        decorated = decorate(decorated)
    return decorated


def scheduler_options(use: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--scheduler``, ``--scheduler-file`` and ``--wait``; ``use`` says what the cluster is for."""
    wait = click.option(
        "--wait",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Wait so long for the scheduler, and for as many workers and free threads as are needed.",
    )
    return lambda command: cluster_options(use)(wait(command))


def cluster_options(use: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--scheduler`` and ``--scheduler-file``; ``use`` says what the cluster is for."""
    by_file = click.option("--scheduler-file", metavar="FILE", help="Find the scheduler by the file it has written.")
    by_address = click.option(
        "--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True, help=use
    )
    return lambda command: by_address(by_file(command))


def job_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a job on a cluster, and the options that say which cluster."""
    argument = click.argument("job", metavar="JOB", shell_complete=_complete_job)
    return argument(cluster_options("Address of the scheduler that the job is on.")(command))


def _complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the id of a job; silently offer none if the scheduler does not answer soon."""
    return list(load("singa_dask.cli.completion:complete_job")(ctx.params, incomplete))
