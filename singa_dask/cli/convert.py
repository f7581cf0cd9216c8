"""``convert``: other formats -> a store of records."""

from __future__ import annotations

from typing import Any

import click

from singa_dask.data.convert import convert as convert_records
from singa_dask.data.convert import parse_split

__all__ = ["convert"]


@click.command()
@click.argument("kind", metavar="KIND")
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.argument("destination", metavar="DST")
@click.option(
    "--to", metavar="BACKEND", help="Format of DST: arrow, kvfile, lmdb, ... Told by its suffix if not given."
)
@click.option("--shuffle", metavar="SEED", type=int, help="Put records in a random order.")
@click.option(
    "--split",
    metavar="NAME=SHARE,...",
    help="Write one store for each part, with equal shares of every label, e.g. train=0.8,test=0.2. "
    "{split} in DST stands for the name; without it, the name is put before the suffix.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Take this many records at most.")
@click.option("--mean", metavar="URL", help="Write the mean record of the first part too, for mean_file.")
@click.option("--separator", metavar="CHARS", help="csv: what parts the values; a comma if not given.")
@click.option("--no-label", is_flag=True, help="csv: lines do not begin with a label.")
@click.option("--shape", metavar="N,N,...", help="csv: shape of one record.")
@click.option("--compression", metavar="NAME", help="arrow: compress blocks, by lz4 or zstd.")
def convert(
    kind: str,
    sources: tuple[str, ...],
    destination: str,
    to: str | None,
    shuffle: int | None,
    split: str | None,
    limit: int | None,
    mean: str | None,
    separator: str | None,
    no_label: bool,
    shape: str | None,
    compression: str | None,
) -> None:
    """Make a store of records.

    KIND is what the sources are: idx (MNIST's files, images and labels), cifar (CIFAR-10's binary batches), csv
    or npz; each may be gzipped. SRC and DST are paths or URLs.
    """
    reading: dict[str, Any] = {
        "separator": separator,
        "has_label": False if no_label else None,
        "shape": numbers(shape),
    }
    writing: dict[str, Any] = {"compression": compression}
    for keys, where in ((reading, kind == "csv"), (writing, to in (None, "arrow"))):
        given = [name for name, value in keys.items() if value is not None]
        if given and not where:
            raise click.UsageError(f"{', '.join(given)}: makes no sense here. See --help.")
    written = convert_records(
        kind,
        sources,
        destination,
        to=to,
        shuffle=shuffle,
        split=parse_split(split) if split else None,
        limit=limit,
        mean=mean,
        reading={name: value for name, value in reading.items() if value is not None},
        writing={name: value for name, value in writing.items() if value is not None},
    )
    for url, count in written.items():
        click.echo(f"{url}: {count} records", err=True)


def numbers(text: str | None) -> list[int] | None:
    """Read ``3,32,32``."""
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--shape {text!r}: expected numbers, e.g. 3,32,32.") from None
