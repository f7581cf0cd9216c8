"""What several verbs do with a job file: read it, and check all that can be checked without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobFile, Phase, load
from singa_dask.errors import ConfigError
from singa_dask.net import NeuralNet
from singa_dask.runtime import prepare

__all__ = ["check", "job_options", "read"]


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the job file, and the options that change what it says."""
    for decorate in (
        click.option("--cluster", "cluster_file", metavar="FILE", help="Take the cluster block from this file."),
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
        command = decorate(command)
    return command


def read(path: str, sets: Iterable[str], cluster_file: str | None) -> JobFile:
    """Read a job file; every mistake in it is raised at once, with its place."""
    return load(path, sets=tuple(sets), cluster_file=cluster_file, registries=REGISTRIES)


def check(job_file: JobFile, **given: Any) -> dict[Phase, NeuralNet]:
    """Check what needs the whole job: wiring, shapes, topology, records, first values; see `prepare`.

    Returns
    -------
    dict of Phase to NeuralNet
        The nets, shapes only.

    Raises
    ------
    ConfigError
        With the places in the file.
    """
    try:
        return prepare(job_file.job, **given)
    except ConfigError as error:
        raise job_file.locate(error) from None
