"""The arguments of a command line, and the command that resumes a run."""

from __future__ import annotations

import os
import shlex

import click
from click.core import ParameterSource

from singa_dask.runtime.checkpoints.checkpoint import Checkpoint
from singa_dask.runtime.checkpoints.lookup import find_unverified


def command_line(ctx: click.Context, without: tuple[str, ...] = ()) -> list[str]:
    """Return the words of a command line, for a person to repeat, without some parameters."""
    arguments, options = [], []
    for param in ctx.command.params:
        name = str(param.name)
        if name in without or ctx.get_parameter_source(name) != ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[name]
        values = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
        if isinstance(param, click.Argument):
            arguments += values
        elif isinstance(param, click.Option) and param.is_flag:
            options += [param.opts[0]] if value else param.secondary_opts[:1]
        else:
            options += [part for each in values for part in (param.opts[0], each)]
    return [*ctx.command_path.split(), *arguments, *options]


def how_to_go_on(ctx: click.Context, url: str, fails_again: bool = False) -> str:
    """Return the line with the step from which a run can be resumed, and the command for it.

    ``fails_again``: it ended by an error of its own, and would do so again.
    """
    found = find_unverified(url)
    step = Checkpoint(found).step if found else 0
    here = os.path.relpath(url) if "://" not in url else url
    where = ["--run-dir", url if here.startswith("..") else here, "--resume"]
    given = command_line(ctx, without=("resume", "run_dir", "init_from", "overwrite"))
    return f"{'once that is mended, ' if fails_again else ''}to go on from step {step}: {shlex.join([*given, *where])}"
