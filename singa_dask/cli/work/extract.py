"""``extract``: what layers make of records, or predictions, as a store of records."""

from __future__ import annotations

import contextlib

import click

from singa_dask.cli import job
from singa_dask.cli.inference import PHASES, Inference, Workers, ends_at_once
from singa_dask.cli.tasks import reported
from singa_dask.data import fs
from singa_dask.data.convert import backend_of
from singa_dask.errors import ConfigError
from singa_dask.runtime.inference.job import classifier, label_layer
from singa_dask.runtime.inference.results import check_writes, folder_beside, url_of_layer, write_records

__all__ = ["extract"]


def extract(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    init_from: tuple[str, ...],
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    layers: tuple[str, ...],
    predictions: bool,
    out: str,
    to: str | None,
    overwrite: bool,
    phase: str,
    steps: int | None,
    quiet: bool,
) -> None:
    """Write what layers of a trained net make of records."""
    if (predictions and len(layers) > 1) or not (predictions or layers):
        raise click.UsageError("Give --layer NAME, once or more, or --predictions with one --layer at most.")
    backend = to or backend_of(out)
    check_writes(backend)
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    layers = layers or (classifier(read.job, PHASES[phase]),)
    out = fs.absolute(out)
    urls = [url_of_layer(out, layer, len(layers) > 1) for layer in layers]
    for url in urls:
        if fs.exists(url) and not overwrite:
            raise ConfigError(f"{url}: exists already. Expected a new file. Give --overwrite to replace it.")
    with contextlib.ExitStack() as stack:
        stack.enter_context(ends_at_once())
        # a few values a record travel with the answers
        folder = "" if predictions else stack.enter_context(folder_beside(out))
        labels = tuple(label_layer(read.job, PHASES[phase], layer) for layer in layers)
        inference = Inference(
            read, PHASES[phase], init_from, layers=layers, label_layers=labels, topk=int(predictions), folder=folder
        )
        facts, parts = inference.run(Workers(workers, scheduler, scheduler_file, wait, quiet), steps or 0, quiet)
        for i, url in enumerate(urls):
            with reported("written", sum(each.part.n_records for each in parts), quiet):
                count = write_records(parts, i, url, backend, facts.class_names[i])
            if not quiet:
                click.echo(f"{url}: {count} records", err=True)
