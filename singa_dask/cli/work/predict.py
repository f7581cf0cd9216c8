"""``predict``: the classes of new records."""

from __future__ import annotations

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.cli.inference import Chosen, ends_at_once, stored_net
from singa_dask.data import fs
from singa_dask.jobs.inference import Records
from singa_dask.runtime.inference.predictions import csv_lines

__all__ = ["predict"]


def predict(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    init_from: tuple[str, ...],
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    urls: tuple[str, ...],
    backend: str | None,
    layers: tuple[str, ...],
    out: str | None,
    topk: int,
    quiet: bool,
) -> None:
    """Predict the classes, labels or targets of new records."""
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    net = stored_net(read, init_from, Chosen(workers, scheduler, scheduler_file, wait, quiet))
    records = [Records(url, backend, named=f"--data {url}") for url in urls]
    with ends_at_once():
        values = net.values(layers, records, topk=topk)
    delimiter = "\t" if out and out.lower().endswith(".tsv") else ","
    lines = csv_lines(values.rows(), delimiter)
    if out is None:
        for line in lines:
            echo(line, nl=False)
        return
    fs.write_atomic(fs.absolute(out), "".join(lines).encode())
    if not quiet:
        echo(f"{out}: {sum(each.count for each in values.found)} records", err=True)
