"""``data``: what a store holds, its first records, whether all can be read, and how fast."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
import numpy as np

from singa_dask.cli.bench import measure, values_of
from singa_dask.cli.echo import echo
from singa_dask.cli.inspection import inspect_store
from singa_dask.cli.inspection_text import inspection_lines
from singa_dask.cli.opening import described, opened, store_format
from singa_dask.cli.reading import Reading
from singa_dask.cli.sheet import Pictures, draw_sheet
from singa_dask.cli.tables import terminal_width
from singa_dask.cli.tasks import counted
from singa_dask.data import fs, write_manifest
from singa_dask.data.order.sampler import Shuffle
from singa_dask.data.stores.manifest_writer import check_manifests, forget_manifest
from singa_dask.errors import DataError

__all__ = ["bench", "head", "inspect", "verify"]


def inspect(url: str, reading: Reading, whole: bool, png: str | None, as_json: bool) -> None:
    """Describe a store."""
    with described(url, reading) as store:
        pictures = Pictures(store, reading.shape) if png else None
        found = inspect_store(store, reading.shape, whole, pictures)
    if as_json:
        echo(json.dumps(found.to_dict()))
    else:
        echo("\n".join(inspection_lines(found, terminal_width())))
    if pictures and png:
        fs.write_atomic(fs.absolute(png), draw_sheet(pictures, found))
        echo(f"{png}: {pictures.described}", err=True)


def head(url: str, n: int, reading: Reading) -> None:
    """Show the first records."""
    with opened(url, reading) as store:
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


def verify(url: str, writes: bool, reading: Reading) -> None:
    """Read every block."""
    # an older one must not find the new data damaged
    names = forget_manifest(url, reading.storage_options) if writes else {}
    bad = 0
    with opened(url, reading) as store:
        with counted("read", store.count) as shown:
            for block in store.blocks:
                try:
                    store.read_block(block.id)
                except DataError as error:
                    shown.say(str(error))
                    bad += 1
                shown.advance(block.n)
        n_blocks, count = len(store.blocks), store.count
        n_sums = sum(block.crc is not None for block in store.blocks)
        if bad:
            raise DataError(f"{url}: {bad} of {n_blocks} blocks cannot be read.")
        for part in store.parts:
            part.check_whole()
        check_manifests(store)
    echo(f"{url}: {count} records in {_blocks(n_blocks)}, all can be read")
    sums = f"checksums of {_blocks(n_sums)} are right" if n_sums else "no manifest: no checksums compared"
    echo(sums)
    if writes:
        backend, options = store_format(url, reading)
        written = [
            manifest
            for file, known in names.items()
            for manifest in write_manifest(file, backend, reading.storage_options, known, **options)
        ]
        echo(f"written: {', '.join(written) or 'none, this format has no use for one'}")


def bench(url: str, batch_size: int, shuffle: Shuffle, rounds: int, reading: Reading, as_json: bool) -> None:
    """Measure the loader's batches beside copies of the same records in memory."""
    with opened(url, reading) as store:
        rates = measure(store, batch_size, shuffle, rounds)
    if as_json:
        echo(json.dumps({"url": url, "batch": batch_size, "shuffle": shuffle, "rates": list(map(asdict, rates))}))
        return
    echo(f"batches of {batch_size}, shuffle {shuffle}; records/s (MiB/s as stored)")
    echo(f"{'':16}{'in memory':>24}{'loader':>24}{'share':>8}")
    for rate in rates:
        memory, loader = (_rate(value, rate.record_bytes) for value in (rate.memory, rate.loader))
        echo(f"{rate.batches:16}{memory:>24}{loader:>24}{rate.share:>8.0%}")


def _row(values: Any) -> str:
    return np.array2string(values.reshape(-1), threshold=12, edgeitems=6, max_line_width=200, precision=4)


def _text(values: Any) -> str:
    return bytes(values).rstrip(b"\0").decode(errors="replace")


def _rate(value: float, record_bytes: int) -> str:
    return f"{value:,.0f} ({value * record_bytes / 2**20:,.0f})"


def _blocks(n: int) -> str:
    return f"{n} block{'s' if n != 1 else ''}"
