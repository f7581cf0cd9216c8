"""``predict``: the classes of new records."""

from __future__ import annotations

import click

from singa_dask.cli import job
from singa_dask.cli.inference import Inference, Workers, ends_at_once, running
from singa_dask.cli.options import inference_options
from singa_dask.conf import Phase
from singa_dask.data import fs
from singa_dask.runtime.inference_job import classifier
from singa_dask.runtime.predictions import Predicted, csv_lines, prediction_rows

__all__ = ["predict"]


@click.command()
@job.job_options
@inference_options
@click.option(
    "--data",
    "urls",
    metavar="URL",
    multiple=True,
    required=True,
    help="The records, which need no labels: a store, a folder of pictures, or one picture. Repeatable.",
)
@click.option("--backend", metavar="NAME", help="Format of --data; told from the file if not given.")
@click.option("--layer", metavar="NAME", help="Layer that has the probabilities, where there is not one SoftmaxLoss.")
@click.option("--out", metavar="URL", help="Write to this file, not to stdout; with tabs if it ends in .tsv.")
@click.option(
    "--topk", metavar="K", type=click.IntRange(min=1), default=1, show_default=True, help="The K likeliest classes."
)
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
    layer: str | None,
    out: str | None,
    topk: int,
    quiet: bool,
) -> None:
    """Predict the classes of new records.

    CSV with a header and a line for each record, in file order: its file, or its number from 0 on where records have no
    files of their own; name, number and probability of the likeliest class; with --topk K those of the next ones.
    Records go through the test net. They are normalised, and images scaled, as its own are.
    """
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    layer = layer or classifier(read.job, Phase.TEST)
    found = []
    with ends_at_once():
        inference = Inference(read, Phase.TEST, init_from, layers=(layer,), labels=False, topk=topk, files=True)
        inferences = [inference.of_records(url, backend) for url in urls]
        with running(Workers(workers, scheduler, scheduler_file, wait, quiet)) as cluster:
            for url, each in zip(urls, inferences, strict=True):
                facts, parts = each.compute(cluster, 0, quiet)
                found.append(Predicted(url, parts))
    delimiter = "\t" if out and out.lower().endswith(".tsv") else ","
    lines = csv_lines(prediction_rows(found, topk, facts.class_names), delimiter)
    if out is None:
        for line in lines:
            click.echo(line, nl=False)
        return
    fs.write_atomic(fs.absolute(out), "".join(lines).encode())
    if not quiet:
        click.echo(f"{out}: {sum(each.count for each in found)} records", err=True)
