"""``predict``: the classes of new records."""

from __future__ import annotations

import click

from singa_dask.cli import job
from singa_dask.cli.inference import Inference, Workers, ends_at_once, running
from singa_dask.conf import Phase
from singa_dask.data import fs
from singa_dask.runtime.inference.job import classifier, label_layer
from singa_dask.runtime.inference.predictions import Predicted, csv_lines, prediction_rows

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
    """Predict the classes of new records."""
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    layers = tuple(dict.fromkeys(layers)) or (classifier(read.job, Phase.TEST),)
    labels = tuple(label_layer(read.job, Phase.TEST, layer) for layer in layers)
    found = []
    with ends_at_once():
        inference = Inference(
            read, Phase.TEST, init_from, layers=layers, label_layers=labels, labels=False, topk=topk, files=True
        )
        inferences = [inference.of_records(url, backend) for url in urls]
        with running(Workers(workers, scheduler, scheduler_file, wait, quiet)) as cluster:
            for url, each in zip(urls, inferences, strict=True):
                facts, parts = each.compute(cluster, 0, quiet)
                found.append(Predicted(url, parts))
    delimiter = "\t" if out and out.lower().endswith(".tsv") else ","
    lines = csv_lines(prediction_rows(found, topk, facts.class_names, layers), delimiter)
    if out is None:
        for line in lines:
            click.echo(line, nl=False)
        return
    fs.write_atomic(fs.absolute(out), "".join(lines).encode())
    if not quiet:
        click.echo(f"{out}: {sum(each.count for each in found)} records", err=True)
