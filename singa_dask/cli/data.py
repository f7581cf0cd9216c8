"""``data``: inspect a store, show its first records, verify all records, and measure reading speed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo, terminal_width
from singa_dask.cli.reading import Reading, mark_options, reading_options
from singa_dask.cli.reading_speed import measure, values_of
from singa_dask.errors import DataError
from singa_dask.shown import by_shape, plural

if TYPE_CHECKING:
    from singa_dask.data.sampler import Shuffle
    from singa_dask.data.stores import Store


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def _store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the URL of a store, and all options to open it."""
    backend = click.option("--backend", metavar="NAME", help="Format of the records; by default detected.")
    return click.argument("url")(backend(reading_options(command)))


@click.group()
def data() -> None:
    """Look at records, and measure how fast they are read."""


@data.command()
@click.option("--all", "whole", is_flag=True, help="Read all records, not a sample of a large store.")
@overwrite_option
@output_option(
    "--png",
    metavar="FILE",
    help="Draw pictures of each class, with their labels. Needs pip install 'singa-dask[images]'.",
)
@_store_options
@mark_options
@json_option
def inspect(
    url: str, reading: Reading, thousands: str, decimal: str, whole: bool, png: str | None, as_json: bool
) -> None:
    """Describe a store: fields, ranges of values, classes, layout, manifest, and likely problems.

    Of a table, it also describes each column: what it holds, the number of missing values, and the range of numbers and
    dates. Ranges and classes of a large store are from a sample; the output shows its size.
    """
    from singa_dask import fs
    from singa_dask.cli.inspection import inspect_store
    from singa_dask.cli.inspection_text import inspection_lines
    from singa_dask.cli.opening import described
    from singa_dask.cli.picture_sheet import Pictures, draw_sheet
    from singa_dask.cli.raw_tables import describe_columns, doubts_of, inspect_raw, is_raw_table, survey_columns
    from singa_dask.data.stores.tables.table_store import TableStore
    from singa_dask.survey.options import worded

    pictures, found, faults = None, None, list[DataError]()
    if is_raw_table(url, reading) and not png:
        try:
            found = survey_columns(url, reading, thousands, decimal)
            reading = replace(reading, options={**found.text, **reading.options})
        except DataError as error:
            faults.append(error)
    try:
        with described(url, reading) as store:
            pictures = Pictures(store, reading.shape) if png else None
            facts = inspect_store(store, reading.shape, whole, pictures)
            if not isinstance(store, TableStore):
                found, faults = None, []
    except DataError as error:
        if found is None:
            raise next(iter([*faults, error])) from None
        facts = inspect_raw(found)
        faults.append(worded(error))
    facts["trouble"] += [f"not yet records of a job: {fault}" for fault in faults]
    if found is not None:
        facts |= {"survey": describe_columns(found), "trouble": [*doubts_of(found), *facts["trouble"]]}
    echo(json.dumps(facts) if as_json else "\n".join(inspection_lines(facts, terminal_width())))
    if pictures and png:
        fs.write_atomic(fs.absolute(png), draw_sheet(pictures, facts))
        echo(f"{png}: {pictures.described}", err=True)


@data.command()
@click.option("-n", "n", type=click.IntRange(min=1), default=5, show_default=True, help="How many records.")
@_store_options
def head(url: str, n: int, reading: Reading) -> None:
    """Show the first records.

    A table is shown as the file contains it, with the names of the columns. For other records, the number, the label
    and the values are shown.
    """
    from singa_dask.cli.opening import opened
    from singa_dask.cli.raw_tables import first_records, head_lines, is_raw_table

    if is_raw_table(url, reading) and (records := first_records(url, reading, n)) is not None:
        echo("\n".join(head_lines(records, terminal_width())))
        return
    with opened(url, reading) as store:
        shown = 0
        for block in store.blocks:
            arrays = store.read_block(block.id)
            for i in range(min(block.n, n - shown)):
                label = f"label {arrays['label'][i]}  " if "label" in arrays else ""
                values = arrays[values_of(store)][i]
                echo(f"{shown + i}: {label}{_show(values, 'line' in arrays)}")
            shown += block.n
            if shown >= n:
                break


@data.command()
@click.option(
    "--write-manifest",
    "writes",
    is_flag=True,
    help="Then write a manifest of the data beside it: blocks and their checksums.",
)
@_store_options
def verify(url: str, writes: bool, reading: Reading) -> None:
    """Read every block, and end with an error if a block cannot be read.

    Every bad picture is named. Pass --resize HxW if pictures have several sizes.

    Blocks are compared with the checksums of the manifest, if there is one. A manifest that does not fit the data is an
    error.
    """
    from singa_dask.cli.opening import opened, store_format
    from singa_dask.cli.tasks import RecordCounter
    from singa_dask.data.stores import write_manifest
    from singa_dask.data.stores.manifest_writer import check_manifests, forget_manifest

    # forget the old manifest, because it would report the new data as damaged
    names = forget_manifest(url, reading.storage_options) if writes else {}
    bad = n_pictures = n_others = 0
    with opened(url, reading) as store:
        with RecordCounter("read", store.count) as shown:
            for block in store.blocks:
                try:
                    store.read_block(block.id)
                except DataError as error:
                    faults, n_differ = _bad_pictures(store, block.id) if store.holds == "images" else ([], 0)
                    n_pictures, n_others = n_pictures + len(faults), n_others + n_differ
                    for fault in faults or [str(error)] * (not n_differ):
                        shown.say(fault)
                    bad += 1
                shown.advance(block.n)
        n_blocks, count = len(store.blocks), store.count
        n_sums = sum(block.crc is not None for block in store.blocks)
        if n_others:
            size = by_shape(store.schema["pixel"].shape[1:])
            sizes = f"{url}: {n_others} of {plural(count, 'picture')} differ in size from the first, {size}. Pass "
            sizes += "--resize HxW to verify them as a job with resize: [H, W] reads them."
            if not n_pictures:
                raise DataError(sizes)
            shown.say(sizes)
        if n_pictures:
            raise DataError(f"{url}: {n_pictures} of {plural(count, 'picture')} cannot be read.")
        if bad:
            raise DataError(f"{url}: {bad} of {n_blocks} blocks cannot be read.")
        for part in store.parts:
            part.check_whole()
        check_manifests(store)
        store.check_unchanged()
    echo(f"{url}: {plural(count, 'record')} in {plural(n_blocks, 'block')}, all can be read")
    sums = f"checksums of {plural(n_sums, 'block')} are right" if n_sums else "no manifest: no checksums compared"
    echo(sums)
    if writes:
        backend, options = store_format(url, reading)
        written = [
            manifest
            for file, known in names.items()
            for manifest in write_manifest(file, backend, reading.storage_options, known, **options)
        ]
        echo(f"written: {', '.join(written) or 'none, this format has no use for one'}")


@data.command()
@click.option("--batch", "batch_size", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--shuffle", type=click.Choice(["none", "block", "full"]), default="none", show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Measurements, whose median is shown."
)
@_store_options
@json_option
def bench(url: str, batch_size: int, shuffle: Shuffle, rounds: int, reading: Reading, as_json: bool) -> None:
    """Compare the speed of the loader's batches with copies of the same records in memory.

    Loader and memory are measured in turns, so their ratio is more reliable than the rates. In the first epoch, all
    records are decoded; in later epochs, only records that the loader does not keep in memory.
    """
    from singa_dask.cli.opening import opened

    with opened(url, reading) as store:
        rates = measure(store, batch_size, shuffle, rounds)
    if as_json:
        echo(json.dumps({"url": url, "batch": batch_size, "shuffle": shuffle, "rates": list(map(asdict, rates))}))
        return
    echo(f"batches of {batch_size}, shuffle {shuffle}; records/s (MiB/s as stored)")
    echo(f"{'':15}{'in memory':>21}{'loader':>21}{'share':>7}{'first epoch':>21}")
    for rate in rates:
        memory, loader, first = (
            _rate(value, rate.record_bytes) for value in (rate.memory, rate.loader, rate.first_epoch)
        )
        echo(f"{rate.batches:15}{memory:>21}{loader:>21}{rate.share:>7.0%}{first:>21}")


def _bad_pictures(store: Store, block_id: int) -> tuple[list[str], int]:
    """Return the faults of damaged pictures of a block, and how many other pictures differ in size from the first."""
    from singa_dask.data.codecs.salvage import OTHER_SCHEMA

    try:
        texts = list(store.salvage(block_id)[1].values())
    except DataError:
        # the block as a whole is bad
        return [], 0
    faults = [f"{text}." for text in texts if not text.startswith(OTHER_SCHEMA)]
    return faults, len(texts) - len(faults)


def _show(values: Any, is_text: bool) -> str:
    import numpy as np

    if is_text:
        return bytes(values).rstrip(b"\0").decode(errors="replace")
    return np.array2string(values.reshape(-1), threshold=12, edgeitems=6, max_line_width=200, precision=4)


def _rate(value: float, record_bytes: int) -> str:
    return f"{value:,.0f} ({value * record_bytes / 2**20:,.0f})"
