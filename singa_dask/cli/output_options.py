"""Options for files to write, checked before any work: an existing file needs ``--overwrite``."""

from __future__ import annotations

import functools

import click


def _check_output(context: click.Context, _: click.Parameter, value: str | None) -> str | None:
    """Raise a ConfigError if the file exists, or its local directory does not."""
    if value and not context.resilient_parsing:
        from singa_dask.fs.outputs import check_output

        check_output(value, overwrite=context.meta.get("overwrite", False), by="--overwrite")
    return value


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
