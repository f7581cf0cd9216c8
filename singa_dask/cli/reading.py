"""Reading: how to open a store, and the options of commands that read records."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from singa_dask.cli.options import Command, with_options
from singa_dask.errors import DataError
from singa_dask.survey.options import worded


@dataclass(frozen=True)
class Reading:
    """The options for opening a store.

    ``options`` are the options of the format, by name. ``shape`` is empty if the user has not set it.
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
        separator: str,
        encoding: str,
        header: bool | None,
        quotes: bool | None,
        na_values: tuple[str, ...],
        no_label: bool,
        features: tuple[str, ...],
        label: str | None,
        options: tuple[str, ...],
        storage_options: tuple[str, ...],
        backend: str | None = None,
        **others: Any,
    ) -> Any:
        known = {
            "resize": numbers("--resize", resize, "x", "32x32"),
            "channels": channels,
            "separator": separator or None,
            "charset": encoding or None,
            "header": header,
            "quotes": quotes,
            "na_values": list(na_values) or None,
            "has_label": False if no_label else None,
            "features": [*features] or None,
            "label": label,
        }
        named = {name: value for name, value in known.items() if value is not None}
        reading = Reading(
            backend,
            tuple(numbers("--shape", shape, ",", "3,32,32") or ()),
            {**named, **_pairs("--option", options)},
            _pairs("--storage-option", storage_options),
        )
        try:
            return command(reading=reading, **others)
        except DataError as error:
            raise worded(error, na_values) from None

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
        names_option("--features", "Tables, jsonl, hdf5, zarr: columns, keys or array with the values of a record."),
        click.option("--no-label", is_flag=True, help="csv: lines do not begin with a label."),
        text_options,
        click.option("--channels", metavar="N", type=int, help="Images: 3 for colour (the default), 1 for grey."),
        click.option("--resize", metavar="HxW", help="Images: scale and crop at the centre."),
        click.option("--shape", metavar="N,N,...", help="Shape of one record, where the format does not store it."),
    )


def split_names(_context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Split the values of an option at commas. Names with commas are in quotes, as in CSV."""
    return tuple(name for each in csv.reader(value, skipinitialspace=True) for name in map(str.strip, each) if name)


def join_names(names: Iterable[str]) -> str:
    """Return the value of an option that `split_names` splits into these names."""
    return ",".join(f'"{name}"' if "," in name else name for name in names)


def names_option(name: str, use: str, metavar: str = "NAMES") -> Callable[[Command], Command]:
    """Return the decorator for an option that takes names, separated by commas, repeated, or both."""
    return click.option(name, metavar=metavar, multiple=True, callback=split_names, help=use)


def text_options(command: Command) -> Command:
    """Add the options for tables of text. An option that is not given is empty or None."""
    return with_options(
        command,
        names_option("--na-values", "Words that mean a missing value, by commas: unknown,n.a.", "WORDS"),
        click.option(
            "--quotes/--no-quotes", default=None, help="Whether CSV fields may be quoted; an error if unclear."
        ),
        click.option(
            "--header/--no-header",
            default=None,
            help="Whether the first line of CSV names the columns; by default detected.",
        ),
        click.option("--encoding", metavar="NAME", default="", help="Encoding of CSV, e.g. latin-1.  [default: utf-8]"),
        click.option(
            "--separator", metavar="CHAR", default="", help="Separator of CSV; init, head and inspect detect it."
        ),
    )


def mark_options(command: Command) -> Command:
    """Add ``--thousands`` and ``--decimal``."""
    decimal = _mark_option("--decimal", ",.", "Decimal mark, where the numbers are ambiguous.")
    return _mark_option("--thousands", ",.' ", "Separator of thousands, where the numbers are ambiguous.")(
        decimal(command)
    )


def _mark_option(name: str, marks: str, use: str) -> Callable[[Command], Command]:
    """Add an option for one of some characters, empty by default."""
    return click.option(
        name,
        metavar="CHAR",
        type=click.Choice([*marks]),
        callback=lambda _context, _option, value: value or "",
        help=use,
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
    from singa_dask.conf.files.yaml_text import read_plain

    pairs: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise click.UsageError(f"{option} {text!r}: expected KEY=VALUE.")
        pairs[key] = read_plain(value, f"{option} {text}")
    return pairs
