"""``data``: look at the records of a store, and measure how fast they are read."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
import numpy as np

from singa_dask.cli.bench import measure, values_of
from singa_dask.data import STORES, Store, open_store, write_manifest
from singa_dask.data.codecs.record import show_schema
from singa_dask.data.order.sampler import Shuffle
from singa_dask.data.stores.class_names import show_names
from singa_dask.data.stores.manifest import forget_manifest
from singa_dask.errors import DataError

__all__ = ["data"]

backend_option = click.option(
    "--backend", metavar="NAME", help="Format of the records; told from the file if not given."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def data() -> None:
    """Look at records, and measure how fast they are read."""


@data.command()
@click.argument("url")
@backend_option
@json_option
def inspect(url: str, backend: str | None, as_json: bool) -> None:
    """Show what a store holds: type and shape of a record, counts, blocks, bytes and fingerprint."""
    with open_store(url, backend) as store:
        facts = _facts(store)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        click.echo(f"{name:12} {value}")


@data.command()
@click.argument("url")
@click.option("-n", "n", type=click.IntRange(min=1), default=5, show_default=True, help="How many records.")
@backend_option
def head(url: str, n: int, backend: str | None) -> None:
    """Show the first records: number, label, and the values in a row."""
    with open_store(url, backend) as store:
        shown = 0
        for block in store.blocks:
            arrays = store.read_block(block.id)
            for i in range(min(block.n, n - shown)):
                label = f"label {arrays['label'][i]}  " if "label" in arrays else ""
                values = arrays[values_of(store)][i]
                click.echo(f"{shown + i}: {label}{_text(values) if 'line' in arrays else _row(values)}")
            shown += block.n
            if shown >= n:
                break


@data.command()
@click.argument("url")
@backend_option
@click.option(
    "--write-manifest",
    "writes",
    is_flag=True,
    help="Then write a manifest beside the data, from the data as it is now: blocks and their checksums.",
)
def verify(url: str, backend: str | None, writes: bool) -> None:
    """Read every block; say which ones cannot be read, and end with an error if there are any.

    Where a manifest has checksums of the blocks, their bytes are compared with these.
    """
    if writes:
        # an older one must not find the new data damaged
        forget_manifest(url)
    bad = 0
    with open_store(url, backend) as store:
        for block in store.blocks:
            try:
                store.read_block(block.id)
            except DataError as error:
                click.echo(str(error), err=True)
                bad += 1
        n_blocks, count, n_sums = len(store.blocks), store.count, _n_checksums(store)
    if bad:
        raise DataError(f"{url}: {bad} of {n_blocks} blocks cannot be read.")
    click.echo(f"{url}: {count} records in {_blocks(n_blocks)}, all can be read")
    sums = f"checksums of {_blocks(n_sums)} are right" if n_sums else "no manifest that fits: no checksums compared"
    click.echo(sums)
    if writes:
        written = write_manifest(url, backend)
        click.echo(f"written: {', '.join(written) or 'none, this format has no use for one'}")


@data.command()
@click.argument("url")
@click.option("--batch", "batch_size", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--shuffle", type=click.Choice(["none", "block", "full"]), default="none", show_default=True)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians of so many are shown."
)
@backend_option
@json_option
def bench(url: str, batch_size: int, shuffle: Shuffle, rounds: int, backend: str | None, as_json: bool) -> None:
    """Measure the loader's batches beside copies of the same records in memory.

    Both take turns in one run; the share of the two tells more than the rates.
    """
    with open_store(url, backend) as store:
        rates = measure(store, batch_size, shuffle, rounds)
    if as_json:
        click.echo(json.dumps({"url": url, "batch": batch_size, "shuffle": shuffle, "rates": list(map(asdict, rates))}))
        return
    click.echo(f"batches of {batch_size}, shuffle {shuffle}; records/s (MiB/s as stored)")
    click.echo(f"{'':16}{'in memory':>24}{'loader':>24}{'share':>8}")
    for rate in rates:
        memory, loader = (_rate(value, rate.record_bytes) for value in (rate.memory, rate.loader))
        click.echo(f"{rate.batches:16}{memory:>24}{loader:>24}{rate.share:>8.0%}")


def _facts(store: Store) -> dict[str, Any]:
    sizes = [block.n for block in store.blocks]
    return {
        "url": store.url,
        "format": next(name for name in STORES.names() if STORES.find(name) is type(store)),
        "record": show_schema(store.schema),
        "records": store.count,
        **({"classes": show_names(store.class_names)} if store.class_names else {}),
        "blocks": len(sizes),
        "block_rows": f"{min(sizes)} to {max(sizes)}",
        "bytes": sum(block.length for block in store.blocks),
        "fingerprint": store.fingerprint,
        "manifest": f"checksums of {n_sums} blocks" if (n_sums := _n_checksums(store)) else "none that fits",
    }


def _n_checksums(store: Store) -> int:
    return sum(block.crc is not None for block in store.blocks)


def _row(values: Any) -> str:
    return np.array2string(values.reshape(-1), threshold=12, edgeitems=6, max_line_width=200, precision=4)


def _text(values: Any) -> str:
    return bytes(values).rstrip(b"\0").decode(errors="replace")


def _rate(value: float, record_bytes: int) -> str:
    return f"{value:,.0f} ({value * record_bytes / 2**20:,.0f})"


def _blocks(n: int) -> str:
    return f"{n} block{'s' if n != 1 else ''}"
