"""``convert``: write records in other formats as a store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from singa_dask import runtime
from singa_dask.cli.clusters import Signals, chosen_cluster
from singa_dask.cli.options import quiet_option, scheduler_options
from singa_dask.cli.printing import echo
from singa_dask.cli.reading import Reading, reading_options
from singa_dask.errors import ConfigError
from singa_dask.shown import plural
from singa_dask.wording import listed


@click.command()
@click.argument("kind", metavar="KIND")
@click.argument("sources", metavar="SRC...", nargs=-1, required=True)
@click.argument("destination", metavar="DST")
@click.option(
    "--to", metavar="BACKEND", help="Format of DST: arrow, kvfile, lmdb, ...; by default chosen by its suffix."
)
@click.option("--shuffle", metavar="SEED", type=int, help="Shuffle the records.")
@click.option(
    "--split",
    metavar="NAME=SHARE,...",
    help="Write a store for each part, stratified by label, e.g. train=0.8,test=0.2. {split} in DST stands for the "
    "name; without it, the name is put before the suffix.",
)
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Convert at most N records.")
@click.option("--shards", metavar="N", type=click.IntRange(min=1), default=1, help="Write each store as N files.")
@click.option("--mean", metavar="URL", help="Also write the mean record of the first part, for mean_file.")
@click.option("--overwrite", is_flag=True, help="Replace DST without asking.")
@click.option("--verify", is_flag=True, help="Read the written records back, and compare.")
@reading_options
@click.option(
    "--vocabulary",
    metavar="URL",
    help="text, words: file of characters, or of words and their counts; created if missing. By default vocab.txt "
    "beside DST.",
)
@click.option("--window", metavar="N", type=int, help="text: characters in a record, by default 50.")
@click.option("--class-size", metavar="N", type=click.IntRange(min=1), help="words: classes, by default 100.")
@click.option("--compression", metavar="NAME", help="arrow, parquet: compress blocks, e.g. by lz4 or zstd.")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Use N processes of this machine.")
@scheduler_options("Use the Dask cluster of this scheduler; its workers must see SRC and DST at the same place.")
@quiet_option
def convert(
    kind: str,
    sources: tuple[str, ...],
    destination: str,
    to: str | None,
    split: str | None,
    mean: str | None,
    verify: bool,
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

    KIND is the format of the sources: idx (MNIST's files, images and labels), cifar (CIFAR's binary batches), csv, npy,
    npz, hdf5, zarr, image-folder (a folder for each class), image-list (lines of name and label), tfrecord, webdataset
    (tars), table (CSV, Parquet or JSON lines with named columns), parquet, image-parquet, jsonl, arrow, kvfile, lmdb,
    text (characters) or words (of rnnlm). SRC and DST are paths or URLs; SRC may be a pattern, 'part-*.tar'.

    With KIND conf, SRC is a job file in SINGA's own format, and DST the same job as YAML.

    DST is the same for any number of workers. It appears when all records are written; until then they are in
    .NAME.convert beside it. If the command is stopped or killed, run it again to continue. It asks before it replaces
    DST, unless --overwrite is passed.
    """
    from singa_dask.cli.opening import by_columns
    from singa_dask.cli.tasks import shown
    from singa_dask.data.convert import ConvertRequest, parse_split, run_here
    from singa_dask.data.convert import convert as convert_records

    if kind == "conf":
        _convert_job(sources, destination, _replacing(overwrite))
        return
    kind, named = by_columns(kind, reading.options)
    keys = {"vocabulary": vocabulary, "window": window, "class_size": class_size, "shape": list(reading.shape) or None}
    named = {key: value for key, value in {**named, **keys}.items() if value is not None}
    with Signals("stopped. To continue, run the same command again"):
        with chosen_cluster(workers, scheduler, scheduler_file, wait, quiet) as cluster:
            run, everywhere = run_here, lambda call: call()
            if cluster is not None:
                client, patience = cluster
                patience.until(lambda: runtime.threads_by_host(client))
                run, everywhere = runtime.on_dask(client), runtime.on_each_worker(client)
            request = ConvertRequest(
                kind,
                sources,
                destination,
                backend=to or "",
                split=parse_split(split) if split else {},
                mean=mean or "",
                reading=named,
                writing={"compression": compression} if compression else {},
                **options,
            )
            written = convert_records(
                request,
                verify=verify,
                storage_options=reading.storage_options,
                run=shown(run, int, quiet),
                log=(lambda text: None) if quiet else (lambda text: echo(text, err=True)),
                before_replacing=_replacing(overwrite),
                everywhere=everywhere,
            )
    for url, count in written.items() if not quiet else ():
        echo(f"{url}: {plural(count, 'record')}", err=True)


def _replacing(overwrite: bool) -> Callable[[Sequence[str]], None]:
    """Return a function that asks before files are replaced; without a terminal it refuses."""

    def ask(urls: Sequence[str]) -> None:
        if overwrite:
            return
        existing = f"{listed(urls, 1)}: exist{'' if urls[1:] else 's'}"
        if not sys.stdin.isatty():
            raise ConfigError(f"{existing} already. Expected a new DST. Pass --overwrite to replace it.")
        click.confirm(f"{existing} already. Replace?", abort=True, err=True)

    return ask


def _convert_job(sources: tuple[str, ...], destination: str, before_replacing: Callable[[Sequence[str]], None]) -> None:
    """Convert a job file in SINGA's own format to YAML."""
    from singa_dask import fs
    from singa_dask.cli import job
    from singa_dask.fs.outputs import check_output

    if len(sources) > 1:
        raise click.UsageError("conf: expected one job file and the name of another, DST.")
    place = check_output(destination, sources, overwrite=True, by="--overwrite")
    text = job.read(sources[0], (), None).given()
    if fs.exists(place):
        before_replacing([destination])
    fs.write_atomic(place, text)
