"""Options for how a trained net reads new records, and from which probability it predicts a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from singa_dask.cli.options import with_options


def parse_missing(context: click.Context, parameter: click.Parameter, value: str | None) -> str | float | None:
    """Parse ``--missing``: ``error``, ``mean`` or a number."""
    if value in (None, "error", "mean"):
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"expected error, mean or a number, got {value!r}.") from None


threshold_option = click.option(
    "--threshold",
    metavar="P",
    type=click.FloatRange(0, 1),
    help="Predict the second of two classes if its probability is at least P.",
)


def gap_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--missing`` and ``--unknown``, for gaps and new categories in records of a table."""
    return with_options(
        command,
        click.option(
            "--missing",
            metavar="WHAT",
            callback=parse_missing,
            help="Fill for missing numbers in a table: error, mean (of the training data), or a number.",
        ),
        click.option(
            "--unknown",
            type=click.Choice(["error", "ignore"]),
            help="Unknown or missing categories in a table: error, or ignore to encode them as zeros.",
        ),
    )
