"""Options that several verbs share. Imports no other room, so that any verb can use them cheaply."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

__all__ = ["CPU", "LATEST", "inference_options", "job_options", "json_option", "scheduler_options"]

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


def scheduler_options(use: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--scheduler``, ``--scheduler-file`` and ``--wait``; ``use`` says what the cluster is for."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        wait = click.option(
            "--wait",
            metavar="SECONDS",
            type=click.FloatRange(min=0),
            default=0.0,
            help="Wait so long for the scheduler, and for as many workers and free threads as are needed.",
        )
        by_file = click.option(
            "--scheduler-file", metavar="FILE", help="Find the scheduler by the file it has written."
        )
        by_address = click.option(
            "--scheduler", metavar="ADDRESS", envvar="DASK_SCHEDULER_ADDRESS", show_envvar=True, help=use
        )
        return by_address(by_file(wait(command)))

    return decorate


def inference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what test, extract and predict have in common: the checkpoint, who computes, ``--quiet``."""
    for decorate in (
        click.option("--quiet", is_flag=True, help="Say nothing but errors."),
        scheduler_options("Use the Dask cluster of this scheduler; its workers must see all files at the same place."),
        click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Use N processes of this machine."),
        click.option(
            "--init-from",
            metavar="URL",
            multiple=True,
            help="Take the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
            "directory, a step of it, or a file or workspace of SINGA's. Repeatable; later ones win.",
        ),
    ):
        command = decorate(command)
    return command
