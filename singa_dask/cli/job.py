"""Reading of job files, warnings on them, and what their layers have written; shared by several verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from singa_dask.api import REGISTRIES
from singa_dask.cli.echo import echo
from singa_dask.cli.options import CPU
from singa_dask.conf import JobFile, Phase, load
from singa_dask.data import fs
from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.checking import warnings_on
from singa_dask.layers.output import Writer
from singa_dask.net import NeuralNet


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
        echo(f"layer {name}: wrote {', '.join(urls)}", err=True)


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
    problems = warnings_on(job_file, nets, embedded, more)
    if strict and problems:
        raise ConfigError(problems)
    for problem in problems if not quiet else ():
        echo(replace(problem, message=f"warning: {problem.message}"), err=True)
