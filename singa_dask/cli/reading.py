"""Reading: how to open a store, and the options of commands that read records."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from singa_dask.cli.options import Command, with_options


@dataclass(frozen=True)
class Reading:
    """The options that say how to open a store.

    ``options`` are the options of the format, by name. ``shape`` is empty if it is not given.
    """

    backend: str | None = None
    shape: tuple[int, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    storage_options: dict[str, Any] = field(default_factory=dict)


def reading_options(command: Command) -> Command:
    """Add the options of `Reading`, except its backend, as the argument ``reading``."""

    @functools.wraps(command)
    def with_reading(
        *,
        shape: str | None,
        resize: str | None,
        channels: int | None,
        separator: str | None,
        header: bool | None,
        no_label: bool,
        features: str | None,
        label: str | None,
        options: tuple[str, ...],
        storage_options: tuple[str, ...],
        backend: str | None = None,
        **others: Any,
    ) -> Any:
        known = {
            "resize": numbers("--resize", resize, "x", "32x32"),
            "channels": channels,
            "separator": separator,
            "header": header,
            "has_label": False if no_label else None,
            "features": None if features is None else [name.strip() for name in features.split(",")],
            "label": label,
        }
        named = {name: value for name, value in known.items() if value is not None}
        reading = Reading(
            backend,
            tuple(numbers("--shape", shape, ",", "3,32,32") or ()),
            {**named, **_pairs("--option", options)},
            _pairs("--storage-option", storage_options),
        )
        return command(reading=reading, **others)

    return with_options(
        with_reading,
        click.option(
            "--storage-option",
            "storage_options",
            metavar="KEY=VALUE",
            multiple=True,
            help="Option of the filesystem, as in storage_options of a job file, e.g. client=webhdfs. Repeatable.",
        ),
        click.option(
            "--option",
            "options",
            metavar="KEY=VALUE",
            multiple=True,
            help="Other option of the format, as in user_conf of a job file, e.g. block_bytes=65536. Repeatable.",
        ),
        click.option(
            "--label",
            metavar="NAME",
            help="Tables, jsonl, webdataset, hdf5, zarr: column, key or array with the label; of a table NAME,... for "
            "several labels.",
        ),
        click.option(
            "--features",
            metavar="NAME,...",
            help="Tables, jsonl, hdf5, zarr: columns, keys or array with the values of a record.",
        ),
        click.option("--no-label", is_flag=True, help="csv: lines do not begin with a label."),
        click.option(
            "--header/--no-header", default=None, help="csv: the first line has names of columns; by default detected."
        ),
        click.option("--separator", metavar="CHARS", help="csv: separator of values; by default a comma."),
        click.option("--channels", metavar="N", type=int, help="Images: 3 for colour (the default), 1 for grey."),
        click.option("--resize", metavar="HxW", help="Images: scale and crop at the centre."),
        click.option("--shape", metavar="N,N,...", help="Shape of one record, where the format does not store it."),
    )


def numbers(option: str, text: str | None, separator: str, example: str) -> list[int] | None:
    """Parse the value of an option such as ``3,32,32`` or ``32x32``."""
    try:
        sizes = None if text is None else [int(part) for part in text.split(separator)]
    except ValueError:
        sizes = []
    if sizes and min(sizes) < 1:
        raise click.UsageError(f"{option} {text!r}: expected numbers from 1 on, e.g. {example}.")
    if sizes is not None and (len(sizes) != 2 if separator == "x" else not sizes):
        raise click.UsageError(f"{option} {text!r}: expected numbers, e.g. {example}.")
    return sizes


def _pairs(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts; values are YAML, as in a job file."""
    from singa_dask.conf.yaml_text import read_plain

    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text!r}: expected KEY=VALUE.")
        pairs[key] = read_plain(value, f"{option} {text}")
    return pairs
