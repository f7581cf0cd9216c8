"""What the verbs for records of a trained net do: find its checkpoint and the workers, and show progress."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

import click

from singa_dask.cli import job
from singa_dask.cli.clusters import chosen_cluster
from singa_dask.cli.echo import echo
from singa_dask.cli.tasks import reported, shown
from singa_dask.conf import Phase
from singa_dask.conf.watched import CONFUSION
from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.inference.stored import (
    HERE,
    PHASES,
    Computation,
    StoredNet,
    StoredRecords,
    Workers,
    csv_lines,
    workers_of,
)
from singa_dask.observe import show_metrics, to_json
from singa_dask.observe.figure import draw_confusion

NAMES = {Phase.TEST: "test", Phase.VALIDATION: "validation"}


def extract(
    layers: tuple[str, ...],
    predictions: bool,
    out: str,
    to: str | None,
    overwrite: bool,
    phase: str,
    steps: int | None,
    quiet: bool,
    **given: Any,
) -> None:
    """Write what layers of a trained net make of records."""
    if (predictions and len(layers) > 1) or not (predictions or layers):
        raise click.UsageError("Give --layer NAME, once or more, or --predictions with one --layer at most.")
    net = _stored_net(quiet=quiet, **given)
    with _ends_at_once():
        for url, n in net.write(
            out,
            layers,
            to=to,
            overwrite=overwrite,
            overwrite_by="--overwrite",
            predictions=predictions,
            phase=PHASES[phase],
            steps=steps or 0,
        ):
            if not quiet:
                echo(f"{url}: {n} records", err=True)


def predict(
    urls: tuple[str, ...],
    backend: str | None,
    layers: tuple[str, ...],
    out: str | None,
    topk: int,
    quiet: bool,
    **given: Any,
) -> None:
    """Predict the classes, labels or targets of new records."""
    net = _stored_net(quiet=quiet, **given)
    records = [StoredRecords(url, backend, named=f"--data {url}") for url in urls]
    with _ends_at_once():
        values = net.values(layers, records, topk=topk)
    delimiter = "\t" if out and out.lower().endswith(".tsv") else ","
    lines = csv_lines(values.rows(), delimiter)
    if out is None:
        for line in lines:
            echo(line, nl=False)
        return
    fs.write_atomic(fs.absolute(out), "".join(lines).encode())
    if not quiet:
        echo(f"{out}: {sum(each.count for each in values.stores)} records", err=True)


def test(
    phase: str,
    steps: int | None,
    metrics: str | None,
    confusion: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Measure the performance of a checkpoint."""
    started = time.perf_counter()
    if confusion and not confusion.lower().endswith((".csv", ".svg", ".png")):
        raise click.UsageError(f"--confusion {confusion}: expected a file that ends in .csv, .svg or .png.")
    net = _stored_net(quiet=quiet, **given)
    which = PHASES[phase]
    names = net.read.job.metrics if metrics is None else [name.strip() for name in metrics.split(",") if name.strip()]
    with _ends_at_once():
        tested = net.test(which, steps, metrics=[*names, *([CONFUSION] if confusion else [])])
    if confusion:
        if len(tested.matrices) > 1:
            raise ConfigError(f"--confusion: the net has several, {', '.join(tested.matrices)}. See sd.test.")
        [matrix] = tested.matrices.values()
        known = next((found for found in tested.class_names if len(found) == len(matrix)), ())
        content = draw_confusion(matrix, known or list(map(str, range(len(matrix)))), confusion[-4:].lower())
        fs.write_atomic(fs.absolute(confusion), content)
    outputs = job.outputs([tested.net])
    summary = {
        "job": net.read.job.name,
        "state": "done",
        "phase": NAMES[which],
        "batches": tested.n_batches,
        "records": tested.n_records,
        "seconds": round(time.perf_counter() - started, 3),
        "bad_records": tested.bad_records,
        "checkpoint": tested.checkpoints,
        NAMES[which]: {**tested.metrics, **{name: each.tolist() for name, each in tested.matrices.items()}},
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


def _stored_net(
    job_file: str,
    sets: Sequence[str],
    cluster_file: str | None,
    strict: bool,
    init_from: Sequence[str],
    workers: int | None,
    scheduler: str | None,
    scheduler_file: str | None,
    wait: float,
    quiet: bool,
) -> StoredNet:
    """Return the net that the options of a verb name, after the warnings on its job.

    Raises
    ------
    ConfigError
        The job is wrong, or there is no checkpoint.
    """
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    if not (init_from or read.job.checkpoint_path):
        raise ConfigError(
            "there is no checkpoint. Give one with --init-from: a run directory, a step of it, or a file of "
            "SINGA's; or as checkpoint_path in the job."
        )

    @contextlib.contextmanager
    def found_workers() -> Iterator[Workers]:
        with chosen_cluster(workers, scheduler, scheduler_file, wait, quiet) as found:
            yield HERE if found is None else workers_of(*found, published=not workers)

    def show(compute: Computation) -> Computation:
        run_shown = shown(compute, lambda result: result.task.index, quiet)
        return lambda parts: iter(run_shown(parts))

    return StoredNet(read, init_from, found_workers, show=show, show_written=partial(reported, "written", quiet=quiet))


@contextlib.contextmanager
def _ends_at_once() -> Iterator[None]:
    """End the program at SIGINT or SIGTERM, after cleaning up."""

    def end(number: int, frame: FrameType | None) -> None:
        echo(f"{signal.Signals(number).name}: stopped.", err=True)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
