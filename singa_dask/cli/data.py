"""``data``: look at the records of a store, and measure how fast they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from singa_dask.cli.loading import does
from singa_dask.cli.reading import reading_options

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def _store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the URL of a store and all options to open it."""
    backend = click.option("--backend", metavar="NAME", help="Format of the records; told from the file if not given.")
    return click.argument("url")(backend(reading_options(command)))


@click.group()
def data() -> None:
    """Look at records, and measure how fast they are read."""


@data.command()
@click.option("--all", "whole", is_flag=True, help="Look at all records, not at a sample of a large store.")
@click.option(
    "--png",
    metavar="FILE",
    help="Draw records of each class as pictures, with their labels. Needs pip install 'singa-dask[images]'.",
)
@_store_options
@json_option
@does("singa_dask.cli.work.data:inspect")
def inspect(**given: Any) -> None:
    """Describe a store: fields, ranges of values, classes, layout, manifest, and likely trouble.

    Ranges and classes of a large store are those of a sample; the output says of how many records.
    """


@data.command()
@click.option("-n", "n", type=click.IntRange(min=1), default=5, show_default=True, help="How many records.")
@_store_options
@does("singa_dask.cli.work.data:head")
def head(**given: Any) -> None:
    """Show the first records: number, label, and the values in a row."""


@data.command()
@click.option(
    "--write-manifest",
    "writes",
    is_flag=True,
    help="Then write a manifest beside the data, from the data as it is now: blocks and their checksums.",
)
@_store_options
@does("singa_dask.cli.work.data:verify")
def verify(**given: Any) -> None:
    """Read every block; say which ones cannot be read, and end with an error if there are any.

    Where a manifest has checksums of the blocks, their bytes are compared with these. A manifest that does not fit the
    data is an error.
    """


@data.command()
@click.option("--batch", "batch_size", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--shuffle", type=click.Choice(["none", "block", "full"]), default="none", show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians of so many are shown."
)
@_store_options
@json_option
@does("singa_dask.cli.work.data:bench")
def bench(**given: Any) -> None:
    """Measure the loader's batches beside copies of the same records in memory.

    Both take turns in one run; the share of the two tells more than the rates.
    """
