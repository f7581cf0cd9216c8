"""``test``: how well a checkpoint does on the records of a phase."""

from __future__ import annotations

import time

import click

from singa_dask.cli import job
from singa_dask.cli.inference import PHASES, Inference, Workers, ends_at_once
from singa_dask.conf import Phase
from singa_dask.observe import show_metrics, to_json
from singa_dask.runtime.inference.results import merge_metrics

__all__ = ["test"]

NAMES = {Phase.TEST: "test", Phase.VALIDATION: "validation"}


def test(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    init_from: tuple[str, ...],
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    phase: str,
    steps: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Measure the performance of a checkpoint."""
    started = time.perf_counter()
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    conf, which = read.job, PHASES[phase]
    if steps is None:
        steps = conf.test_steps if which == Phase.TEST else conf.validate_steps
    with ends_at_once():
        inference = Inference(read, which, init_from, in_order=not steps, opened=False)
        facts, parts = inference.run(Workers(workers, scheduler, scheduler_file, wait, quiet), steps, quiet)
    metrics = merge_metrics(parts, facts.batchsize)
    n_batches = sum(done.part.n_batches for done in parts)
    outputs = job.outputs([inference.net])
    summary = {
        "job": conf.name,
        "state": "done",
        "phase": NAMES[which],
        "batches": n_batches,
        "records": sum(done.part.n_batches * done.part.batchsize for done in parts),
        "seconds": round(time.perf_counter() - started, 3),
        "bad_records": sum(done.bad_records for done in parts),
        "checkpoint": inference.checkpoints,
        NAMES[which]: metrics,
        **({"outputs": outputs} if outputs else {}),
    }
    if not quiet:
        if summary["bad_records"]:
            click.echo(f"{summary['bad_records']} bad records were passed over", err=True)
        told = f"{n_batches} batches, {summary['records']} records"
        click.echo(f"{NAMES[which].capitalize()}: {show_metrics(metrics)}  ({told})", err=True)
        job.show_outputs(outputs)
    if as_json:
        click.echo(to_json(summary))
