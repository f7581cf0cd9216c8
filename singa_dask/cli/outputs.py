"""Options for files to write, checked before any work: an existing file needs ``--overwrite``."""

from __future__ import annotations

import functools
import os
import shlex

import click

from singa_dask.errors import ConfigError


def _check_output(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """Raise a ConfigError if the file exists, or its local directory does not."""
    if value and not context.resilient_parsing:
        from singa_dask.fs.outputs import check_output

        check_folder(value, check_output(value, overwrite=context.meta.get("overwrite", False), by="--overwrite"))
    return value


def check_folder(url: str, place: str) -> None:
    """Raise a ConfigError if a file's local directory does not exist; ``place`` is its absolute URL."""
    from singa_dask import fs

    path = fs.local_path(place)
    if path and not os.path.isdir(folder := os.path.dirname(path)):
        raise ConfigError(f"{url}: no directory {folder}. Create it first: mkdir -p {shlex.quote(folder)}.")


output_option = functools.partial(click.option, callback=_check_output)
"""Add an option for a file to write, to a command that also has `overwrite_option`."""
overwrite_option = click.option(
    "--overwrite",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, value: context.meta.update(overwrite=value),
    help="Replace files that exist.",
)
