"""``data``: what a store holds, its first records, whether all can be read, and how fast; ``convert`` makes one."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from singa_dask import runtime
from singa_dask.cli.clusters import Signals, chosen_cluster
from singa_dask.cli.options import Reading, echo, reading_options, scheduler_options, terminal_width
from singa_dask.cli.outputs import output_option, overwrite_option
from singa_dask.errors import ConfigError, DataError, listed
from singa_dask.shown import plural

if TYPE_CHECKING:
    import numpy as np

    from singa_dask.data.loading import Loader
    from singa_dask.data.sampler import Shuffle
    from singa_dask.data.stores import Store


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
@overwrite_option
@output_option(
    "--png",
    metavar="FILE",
    help="Draw records of each class as pictures, with their labels. Needs pip install 'singa-dask[images]'.",
)
@_store_options
@json_option
def inspect(url: str, reading: Reading, whole: bool, png: str | None, as_json: bool) -> None:
    """Describe a store: fields, ranges of values, classes, layout, manifest, and likely trouble.

    Ranges and classes of a large store are those of a sample; the output says of how many records.
    """
    from singa_dask import fs
    from singa_dask.cli.inspection import Pictures, draw_sheet, inspect_store, inspection_lines
    from singa_dask.cli.opening import described

    with described(url, reading) as store:
        pictures = Pictures(store, reading.shape) if png else None
        facts = inspect_store(store, reading.shape, whole, pictures)
    echo(json.dumps(facts) if as_json else "\n".join(inspection_lines(facts, terminal_width())))
    if pictures and png:
        fs.write_atomic(fs.absolute(png), draw_sheet(pictures, facts))
        echo(f"{png}: {pictures.described}", err=True)


@data.command()
@click.option("-n", "n", type=click.IntRange(min=1), default=5, show_default=True, help="How many records.")
@_store_options
def head(url: str, n: int, reading: Reading) -> None:
    """Show the first records: number, label, and the values in a row."""
    from singa_dask.cli.opening import opened

    with opened(url, reading) as store:
        shown = 0
        for block in store.blocks:
            arrays = store.read_block(block.id)
            for i in range(min(block.n, n - shown)):
                label = f"label {arrays['label'][i]}  " if "label" in arrays else ""
                values = arrays[_values_of(store)][i]
                echo(f"{shown + i}: {label}{_show(values, 'line' in arrays)}")
            shown += block.n
            if shown >= n:
                break


@data.command()
@click.option(
    "--write-manifest",
    "writes",
    is_flag=True,
    help="Then write a manifest beside the data, from the data as it is now: blocks and their checksums.",
)
@_store_options
def verify(url: str, writes: bool, reading: Reading) -> None:
    """Read every block; say which ones cannot be read, and end with an error if there are any.

    Where a manifest has checksums of the blocks, their bytes are compared with these. A manifest that does not fit the
    data is an error.
    """
    from singa_dask.cli.opening import opened, store_format
    from singa_dask.cli.tasks import counted
    from singa_dask.data.stores import write_manifest
    from singa_dask.data.stores.manifest_writer import check_manifests, forget_manifest

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
    "--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="Medians of so many are shown."
)
@_store_options
@json_option
def bench(url: str, batch_size: int, shuffle: Shuffle, rounds: int, reading: Reading, as_json: bool) -> None:
    """Measure the loader's batches beside copies of the same records in memory.

    Both take turns in one run; the share of the two tells more than the rates. In the first epoch all records are
    decoded, in later ones those that the loader does not keep in memory.
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


# of a benchmark; the second one begins inside a block
EPOCHS = 2
MAX_BYTES = 1 << 30
SCALE = 255.0


def _values_of(store: Store) -> str:
    """Return the name of what a net reads, or its parser."""
    known = ("data", "pixel", *(name for name in store.schema if name != "label"), "label")
    return next(name for name in known if name in store.schema)


def _show(values: Any, is_text: bool) -> str:
    import numpy as np

    if is_text:
        return bytes(values).rstrip(b"\0").decode(errors="replace")
    return np.array2string(values.reshape(-1), threshold=12, edgeitems=6, max_line_width=200, precision=4)


def _rate(value: float, record_bytes: int) -> str:
    return f"{value:,.0f} ({value * record_bytes / 2**20:,.0f})"


# -- benchmark -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """Records per second of one kind of batches: in memory, by the loader, their ratio, and in its first epoch."""

    batches: str
    memory: float
    loader: float
    share: float
    first_epoch: float
    record_bytes: int


def measure(store: Store, batch_size: int = 256, shuffle: Shuffle = "none", rounds: int = 3) -> list[Rate]:
    """Measure batches as they are stored, and scaled to float32, beside copies of the same records in memory.

    A batch counts once its values are in the reader's own memory: a batch that is a view of the file is copied, just as
    in memory each batch is copied once to the same buffer.

    Parameters
    ----------
    store : Store
    batch_size : int
    shuffle : {"none", "block", "full"}
    rounds : int
        Memory and loader take turns; the medians are returned.

    Raises
    ------
    DataError
        There are fewer records than one batch, or more than 1 GiB.
    """
    import numpy as np

    from singa_dask.data.loading import Loader
    from singa_dask.data.sampler import Sampler
    from singa_dask.ops import get_ops

    name = _values_of(store)
    field = store.schema[name]
    if store.count < batch_size:
        raise DataError(
            f"{store.url}: {plural(store.count, 'record is', 'records are')} less than a batch of {batch_size}."
        )
    if store.count * field.size_bytes > MAX_BYTES:
        raise DataError(f"{store.url}: more than 1 GiB. Measure a part of it, e.g. one that convert --limit makes.")
    records = np.concatenate([store.read_block(block.id)[name] for block in store.blocks])
    order = Sampler([block.n for block in store.blocks], batch_size, shuffle, fingerprint=store.fingerprint)
    copies = np.zeros((batch_size, *records.shape[1:]), records.dtype)
    scaled, ops = np.zeros(copies.shape, np.float32), get_ops("numpy")

    def copy(values: np.ndarray) -> None:
        # the loader marks what it has not copied
        if not values.flags.writeable:
            np.copyto(copies, values)

    def scale(values: np.ndarray) -> None:
        ops.normalize(values, None, SCALE, out=scaled)

    rates = []
    for kind, use in ((str(records.dtype), copy), ("float32 scaled", scale)):
        with Loader(store, order, name="bench") as loader:
            first = _run_loader(loader, name, use, 1)
            loops = [(_run_memory(records, batch_size, use), _run_loader(loader, name, use)) for _ in range(rounds)]
            memory, ours = (statistics.median(column) for column in zip(*loops, strict=True))
            share = statistics.median(our / memory for memory, our in loops)
            rates.append(Rate(kind, memory, ours, share, first, field.size_bytes))
    return rates


def _run_memory(records: np.ndarray, batch_size: int, use: Callable[[np.ndarray], None]) -> float:
    records.flags.writeable = False
    steps = len(records) // batch_size
    started = time.perf_counter()
    for _ in range(EPOCHS):
        for i in range(steps):
            use(records[i * batch_size : (i + 1) * batch_size])
    return EPOCHS * steps * batch_size / (time.perf_counter() - started)


def _run_loader(loader: Loader, name: str, use: Callable[[np.ndarray], None], n_epochs: int = EPOCHS) -> float:
    batch_size = loader.sampler.batch_size
    steps = n_epochs * loader.store.count // batch_size
    started = time.perf_counter()
    for _ in range(steps):
        use(loader.next().arrays[name])
    seconds = time.perf_counter() - started
    # nothing is read ahead while the other side is measured
    loader.rewind()
    return steps * batch_size / seconds


# ``convert``: other formats -> a store of records.


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
@click.option("--shards", metavar="N", type=click.IntRange(min=1), default=1, help="Write each store as N files.")
@click.option("--mean", metavar="URL", help="Write the mean record of the first part too, for mean_file.")
@click.option("--overwrite", is_flag=True, help="Replace DST if it is there, without a question.")
@click.option("--verify", is_flag=True, help="Read what was written, and compare.")
@reading_options
@click.option(
    "--vocabulary",
    metavar="URL",
    help="text, words: the file of characters, or of words and their counts; made if it is not there. vocab.txt beside "
    "DST if not given.",
)
@click.option("--window", metavar="N", type=int, help="text: characters of a record, 50 if not given.")
@click.option("--class-size", metavar="N", type=click.IntRange(min=1), help="words: classes, 100 if not given.")
@click.option("--compression", metavar="NAME", help="arrow, parquet: compress blocks, e.g. by lz4 or zstd.")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Use N processes of this machine.")
@scheduler_options("Use the Dask cluster of this scheduler; its workers must see SRC and DST at the same place.")
@click.option("--quiet", is_flag=True, help="Say nothing but errors.")
def convert(
    kind: str,
    sources: tuple[str, ...],
    destination: str,
    split: str | None,
    overwrite: bool,
    reading: Reading,
    vocabulary: str | None,
    window: int | None,
    class_size: int | None,
    compression: str | None,
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    quiet: bool,
    **options: Any,
) -> None:
    """Make a store of records.

    KIND is what the sources are: idx (MNIST's files, images and labels), cifar (CIFAR's binary batches), csv, npy, npz,
    hdf5, zarr, image-folder (a folder for each class), image-list (lines of name and label), tfrecord, webdataset
    (tars), table (CSV, Parquet or JSON lines with named columns), parquet, image-parquet, jsonl, arrow, kvfile, lmdb,
    text (characters) or words (of rnnlm). SRC and DST are paths or URLs; a SRC may be a pattern, 'part-*.tar'.

    With KIND conf, SRC is a job file in SINGA's own format, and DST the same job as YAML.

    DST is the same for any number of workers. It takes its place when all is done; until then what is done lies in
    .NAME.convert beside it, and the same command, after it was stopped or killed, goes on from there. A DST that exists
    is replaced only after a question, or with --overwrite.
    """
    from singa_dask.cli.opening import by_columns
    from singa_dask.cli.tasks import shown
    from singa_dask.data.convert import convert as convert_records
    from singa_dask.data.convert import parse_split, run_here

    if kind == "conf":
        _convert_job(sources, destination, _replacing(overwrite))
        return
    kind, named = by_columns(kind, reading.options)
    keys = {"vocabulary": vocabulary, "window": window, "class_size": class_size, "shape": list(reading.shape) or None}
    named = {key: value for key, value in {**named, **keys}.items() if value is not None}
    with Signals("stopped. The same command goes on"):
        with chosen_cluster(workers, scheduler, scheduler_file, wait, quiet) as cluster:
            run, everywhere = run_here, lambda call: call()
            if cluster is not None:
                client, patience = cluster
                patience.until(lambda: runtime.threads_by_host(client))
                run, everywhere = runtime.on_dask(client), runtime.on_each_worker(client)
            written = convert_records(
                kind,
                sources,
                destination,
                **options,
                split=parse_split(split) if split else None,
                storage_options=reading.storage_options,
                reading=named,
                writing={"compression": compression} if compression else None,
                run=shown(run, int, quiet),
                log=(lambda text: None) if quiet else (lambda text: echo(text, err=True)),
                before_replacing=_replacing(overwrite),
                everywhere=everywhere,
            )
    for url, count in written.items() if not quiet else ():
        echo(f"{url}: {plural(count, 'record')}", err=True)


def _replacing(overwrite: bool) -> Callable[[Sequence[str]], None]:
    """Return a function that asks before files are replaced, or refuses if nobody can be asked."""

    def ask(urls: Sequence[str]) -> None:
        if overwrite:
            return
        existing = f"{listed(urls, 1)}: exist{'' if urls[1:] else 's'}"
        if not sys.stdin.isatty():
            raise ConfigError(f"{existing} already. Expected a new DST. Give --overwrite to replace it.")
        click.confirm(f"{existing} already. Replace?", abort=True, err=True)

    return ask


def _convert_job(sources: tuple[str, ...], destination: str, before_replacing: Callable[[Sequence[str]], None]) -> None:
    """Write a job file as YAML."""
    from singa_dask import fs
    from singa_dask.cli import job
    from singa_dask.fs.outputs import check_output

    if len(sources) > 1:
        raise click.UsageError("conf: expected one job file and the name of another, DST.")
    text = job.read(sources[0], (), None).given()
    place = check_output(destination, sources, overwrite=True, by="--overwrite")
    if fs.exists(place):
        before_replacing([destination])
    fs.write_atomic(place, text)
