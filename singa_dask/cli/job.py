"""Job files on the command line: read them, print warnings, and show how to resume a run."""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import click
from click.core import ParameterSource

from singa_dask import fs
from singa_dask.api import REGISTRIES
from singa_dask.cli.options import CPU
from singa_dask.cli.printing import echo
from singa_dask.conf import JobFile, Phase, load
from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.checks import warnings_on
from singa_dask.net import NeuralNet
from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find_unverified


def read(path: str, sets: Iterable[str], cluster_file: str | None) -> JobFile:
    """Read a job file; raise one error that lists all mistakes with their places in the file."""
    collect_again()
    changes = tuple(each if each != CPU else "gpu=[]" for each in sets)
    job_file = load(path, sets=changes, cluster_file=cluster_file, registries=REGISTRIES)
    if CPU in sets and job_file.job.ops == "cupy":
        return load(path, sets=(*changes, "ops=auto"), cluster_file=cluster_file, registries=REGISTRIES)
    return job_file


def of_run(path: str, init_from: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return a job file, and the checkpoints to initialise from.

    If ``path`` is a run directory or a step of it, this is the run's job, with the values of ``path`` unless
    ``init_from`` has other checkpoints. Else both arguments are returned.
    """
    if path == "-" or not fs.is_dir(fs.absolute(path)):
        return path, init_from
    from singa_dask.observe.files.stored_run import run_of

    url = fs.absolute(path).rstrip("/")
    run = run_of(url, f"pass its job file, with --init-from {path}.")
    return fs.join(run, "resolved.yaml"), tuple(init_from) or (url,)


def collect_again() -> None:
    """Run the garbage collector as usual, once the modules of a command are imported."""
    _freeze()
    gc.set_threshold(10_000)


@cache
def _freeze() -> None:
    """Exclude modules from garbage collection, which takes a tenth of a second when the program ends."""
    gc.freeze()


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
    nets : mapping of Phase to NeuralNet, optional
        The job's nets, if it is going to be trained.
    strict : bool
        Raise the warnings, all in one ConfigError, instead of printing them.
    quiet : bool
        Print nothing.
    embedded : bool
        Whether this machine trains the job alone.
    more : iterable of Problem
        Further warnings of the command.
    """
    problems = warnings_on(job_file, nets, embedded, more)
    if strict and problems:
        raise ConfigError(problems)
    for problem in problems if not quiet else ():
        echo(replace(problem, message=f"warning: {problem.message}"), err=True)


def command_line(ctx: click.Context, without: tuple[str, ...] = ()) -> list[str]:
    """Return the command line that repeats a command, without the parameters ``without``."""
    arguments, options = [], []
    for param in ctx.command.params:
        name = str(param.name)
        if name in without or ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        # --overwrite is missing from ctx.params
        value = ctx.params.get(name, True)
        values = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
        if isinstance(param, click.Argument):
            arguments += values
        elif isinstance(param, click.Option) and param.is_flag:
            options += [param.opts[0]] if value else param.secondary_opts[:1]
        else:
            options += [part for each in values for part in (param.opts[0], each)]
    return [*ctx.command_path.split(), *arguments, *options]


def how_to_go_on(ctx: click.Context, url: str, fails_again: bool = False, still_runs: bool = False) -> str:
    """Return a message with the step from which a run can be resumed, and the command to resume it.

    With ``fails_again``, it says that the error has to be fixed first. With ``still_runs``, it says that a checkpoint
    may still be written.
    """
    if still_runs:
        from_where = "the last checkpoint of its units, once they have stopped"
    else:
        checkpoint = find_unverified(url)
        from_where = f"step {Checkpoint(checkpoint).step if checkpoint else 0}"
    here = os.path.relpath(url) if "://" not in url else url
    where = ["--run-dir", url if here.startswith("..") else here, "--resume"]
    words = command_line(ctx, without=("resume", "run_dir", "init_from", "overwrite"))
    return f"{'after fixing that, ' if fails_again else ''}to resume from {from_where}: {shlex.join([*words, *where])}"
