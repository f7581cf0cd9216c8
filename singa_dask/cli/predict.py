"""``predict``: the classes of new records."""

from __future__ import annotations

import click

from singa_dask.cli import job
from singa_dask.cli.inference import Inference, Workers, ends_at_once
from singa_dask.cli.options import inference_options
from singa_dask.conf import Phase
from singa_dask.data import fs
from singa_dask.runtime.inference_job import classifier
from singa_dask.runtime.inference_results import prediction_lines

__all__ = ["predict"]


@click.command()
@job.job_options
@inference_options
@click.option("--data", metavar="URL", required=True, help="The records; they need no labels.")
@click.option("--backend", metavar="NAME", help="Format of --data; told from the file if not given.")
@click.option("--layer", metavar="NAME", help="Layer that has the probabilities, where there is not one SoftmaxLoss.")
@click.option("--out", metavar="URL", help="Write the lines to this file, not to stdout.")
@click.option(
    "--topk", metavar="K", type=click.IntRange(min=1), default=1, show_default=True, help="The K likeliest classes."
)
def predict(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    init_from: tuple[str, ...],
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    data: str,
    backend: str | None,
    layer: str | None,
    out: str | None,
    topk: int,
    quiet: bool,
) -> None:
    """Predict the classes of new records.

    A line for each record, in file order: its number from 0 on, the likeliest class, its probability; with --topk K the
    next ones behind it. Records go through the test net; they are normalised, and images scaled, as its own are.
    """
    read = job.read(job_file, sets, cluster_file)
    layer = layer or classifier(read.job, Phase.TEST)
    with ends_at_once():
        inference = Inference(read, Phase.TEST, init_from, layers=(layer,), labels=False, topk=topk)
        inference.take_records(data, backend)
        _, parts = inference.run(Workers(workers, scheduler, scheduler_file), 0, quiet)
    lines = prediction_lines(parts)
    if out is None:
        for line in lines:
            click.echo(line, nl=False)
        return
    fs.write_atomic(fs.absolute(out), "".join(lines).encode())
    if not quiet:
        click.echo(f"{out}: {sum(len(done.arrays[0]['data']) for done in parts)} records", err=True)
