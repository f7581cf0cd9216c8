"""Reading and checking of job files, as far as that needs no cluster; shared by several verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from singa_dask.api import REGISTRIES
from singa_dask.cli.options import CPU
from singa_dask.conf import JobFile, Phase, find_warnings, load
from singa_dask.data import fs
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.output import Writer
from singa_dask.net import NeuralNet
from singa_dask.runtime import missing_gpus, net_warnings, prepare, worker_warnings
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.train import with_initialisers

__all__ = ["check", "complete", "outputs", "read", "refuse_missing_gpus", "show_outputs", "warn"]


def read(path: str, sets: Iterable[str], cluster_file: str | None) -> JobFile:
    """Read a job file; every mistake in it is raised at once, with its place."""
    given = tuple(each if each != CPU else "gpu=[]" for each in sets)
    found = load(path, sets=given, cluster_file=cluster_file, registries=REGISTRIES)
    if CPU in sets and found.job.ops == "cupy":
        return load(path, sets=(*given, "ops=auto"), cluster_file=cluster_file, registries=REGISTRIES)
    return found


def outputs(nets: Iterable[NeuralNet]) -> dict[str, list[str]]:
    """Return the URLs that layers have written and this process can see, by layer."""
    writers = {layer.conf_name: layer for net in nets for layer in net.all_layers if isinstance(layer, Writer)}
    found: dict[str, list[str]] = {}
    for name, writer in writers.items():
        urls = [fs.absolute(url) for url in writer.urls() if fs.exists(url, writer.store.storage_options)]
        found |= {name: urls} if urls else {}
    return found


def show_outputs(found: Mapping[str, Sequence[str]]) -> None:
    """Print where each output layer has written."""
    for name, urls in found.items():
        click.echo(f"layer {name}: wrote {', '.join(urls)}", err=True)


def check(job_file: JobFile, **given: Any) -> dict[Phase, NeuralNet]:
    """Check what needs the whole job: wiring, shapes, topology, records, initial values; see `prepare`.

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


def complete(job_file: JobFile, init_from: Sequence[str] = ()) -> JobFile:
    """Add the initialisers of the layers' types for params that neither the job nor a checkpoint initialises.

    SINGA's own files, and jobs that start from checkpoints (``init_from`` among them), stay as they are: that nothing
    says it is a mistake there.

    Raises
    ------
    ConfigError
        The training net cannot be built; with the places in the file.
    """
    job = job_file.job
    if job_file.is_singa or job.checkpoint_path or init_from or not job.trains:
        return job_file
    try:
        return replace(job_file, job=with_initialisers(job, build_nets(job)[Phase.TRAIN]))
    except ConfigError as error:
        raise job_file.locate(error) from None


def refuse_missing_gpus(job_file: JobFile) -> None:
    """Check that this machine has the GPUs that a job asks for, before it starts.

    Raises
    ------
    ConfigError
        It does not; with the place in the file.
    """
    if found := missing_gpus(job_file.job):
        raise ConfigError(job_file.in_order(found))


def warn(
    job_file: JobFile,
    nets: Mapping[Phase, NeuralNet] | None = None,
    *,
    strict: bool,
    quiet: bool = False,
    embedded: bool = False,
    more: Iterable[Problem] = (),
) -> None:
    """Print the warnings on a job to stderr, each with its place in the file.

    Parameters
    ----------
    job_file : JobFile
    nets : mapping of Phase to NeuralNet, optional
        Where the job is to be trained: its nets.
    strict : bool
        Raise them instead.
    quiet : bool
        Print nothing.
    embedded : bool
        Whether this machine is to train the job alone.
    more : iterable of Problem
        Warnings that the verb has found itself.

    Raises
    ------
    ConfigError
        All warnings at once, if ``strict``.
    """
    found = [*find_warnings(job_file.job, REGISTRIES, training=nets is not None), *net_warnings(nets or {})]
    if embedded:
        found += [*worker_warnings(job_file.job), *missing_gpus(job_file.job)]
    problems = job_file.in_order([*found, *more])
    if strict and problems:
        raise ConfigError(problems)
    for problem in problems if not quiet else ():
        click.echo(replace(problem, message=f"warning: {problem.message}"), err=True)
