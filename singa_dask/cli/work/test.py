"""``test``: how well a checkpoint does on the records of a phase."""

from __future__ import annotations

import time

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.cli.inference import Chosen, ends_at_once, stored_net
from singa_dask.conf import Phase
from singa_dask.jobs.stored import PHASES
from singa_dask.observe import show_metrics, to_json

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
    which = PHASES[phase]
    net = stored_net(read, init_from, Chosen(workers, scheduler, scheduler_file, wait, quiet))
    with ends_at_once():
        tested = net.test(which, steps)
    outputs = job.outputs([tested.net])
    summary = {
        "job": read.job.name,
        "state": "done",
        "phase": NAMES[which],
        "batches": tested.n_batches,
        "records": tested.n_records,
        "seconds": round(time.perf_counter() - started, 3),
        "bad_records": tested.bad_records,
        "checkpoint": tested.checkpoints,
        NAMES[which]: tested.metrics,
        **({"outputs": outputs} if outputs else {}),
    }
    if not quiet:
        if tested.bad_records:
            echo(f"{tested.bad_records} bad records were passed over", err=True)
        told = f"{tested.n_batches} batches, {tested.n_records} records"
        echo(f"{NAMES[which].capitalize()}: {show_metrics(tested.metrics)}  ({told})", err=True)
        job.show_outputs(outputs)
    if as_json:
        echo(to_json(summary))
