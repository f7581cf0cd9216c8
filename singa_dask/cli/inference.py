"""The verbs that use a trained net: ``extract``, ``predict``, ``sample``, ``test``."""

from __future__ import annotations

import contextlib
import io
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from singa_dask import observe
from singa_dask.cli.clusters import chosen_cluster
from singa_dask.cli.options import job_options, json_option, scheduler_options, with_options
from singa_dask.cli.output import echo
from singa_dask.errors import ConfigError

if TYPE_CHECKING:
    from singa_dask.inference.stored import Computation, StoredNet, Workers


def _inference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what they have in common: the checkpoint, who computes, ``--quiet``."""
    return with_options(
        command,
        click.option("--quiet", is_flag=True, help="Say nothing but errors."),
        scheduler_options("Use the Dask cluster of this scheduler; its workers must see all files at the same place."),
        click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Use N processes of this machine."),
        click.option(
            "--init-from",
            metavar="URL",
            multiple=True,
            help="Take the values of this checkpoint, by name of param, instead of the job's checkpoint_path: a run "
            "directory, a step of it, or a file or workspace of SINGA's. Repeatable; later ones win.",
        ),
    )


@click.command()
@job_options
@_inference_options
@click.option("--layer", "layers", metavar="NAME", multiple=True, help="Layer whose values to write. Repeatable.")
@click.option(
    "--predictions",
    is_flag=True,
    help="Write the predicted class and its probability, as the SoftmaxLoss has them, or the --layer.",
)
@click.option(
    "--out",
    metavar="URL",
    required=True,
    help="Where to; {layer} in it stands for the layer's name, which is else, of several, put before the suffix.",
)
@click.option(
    "--to", metavar="BACKEND", help="Format of --out: arrow, csv, kvfile, lmdb, ... Told by its suffix if not given."
)
@click.option(
    "--phase",
    type=click.Choice(["train", "val", "test"]),
    default="test",
    show_default=True,
    help="Whose records and layers; that of train is computed as in a test.",
)
@click.option("--overwrite", is_flag=True, help="Replace --out if it exists.")
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help="Take so many batches only.")
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
    """Write what layers of a trained net make of records.

    Each record is read once, in file order, computed as in a test, and becomes one record, with its label if it has
    one. A loss of softmax gives its probabilities. With --predictions a record is (class, probability): in CSV a line
    reads label,class,probability. What is written is the same for any number of workers, and takes its place when all
    is done.
    """
    from singa_dask.inference.stored import PHASES

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


@click.command()
@job_options
@_inference_options
@click.option(
    "--data",
    "urls",
    metavar="URL",
    multiple=True,
    required=True,
    help="The records, which need no labels: a store, a folder of pictures, or one picture. Repeatable.",
)
@click.option("--backend", metavar="NAME", help="Format of --data; told from the file if not given.")
@click.option(
    "--layer",
    "layers",
    metavar="NAME",
    multiple=True,
    help="Layer that has the probabilities, where not just one loss computes them. Repeatable, for several labels.",
)
@click.option("--out", metavar="URL", help="Write to this file, not to stdout; with tabs if it ends in .tsv.")
@click.option(
    "--topk", metavar="K", type=click.IntRange(min=1), default=1, show_default=True, help="The K likeliest classes."
)
def predict(
    urls: tuple[str, ...],
    backend: str | None,
    layers: tuple[str, ...],
    out: str | None,
    topk: int,
    quiet: bool,
    **given: Any,
) -> None:
    """Predict the classes, labels or targets of new records.

    CSV with a header and a line for each record, in file order: its file, or its number from 0 on where records have no
    files of their own; name, number and probability of the likeliest class; with --topk K those of the next ones. With
    several --layer each has such columns, after its name. A SigmoidCrossEntropyLoss has a column for each label
    instead, with its probability, and a net that predicts numbers has one for each target.
    Records go through the test net. They are normalised, and images scaled, as its own are.
    """
    from singa_dask.data import fs
    from singa_dask.inference.stored import StoredRecords, csv_lines

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


@click.command()
@job_options
@_inference_options
@click.option("--phase", type=click.Choice(["test", "val"]), default="test", show_default=True, help="Which net.")
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=0),
    help="Batches; 0 is every record once. Without it, the job's test_steps, or validate_steps.",
)
@click.option(
    "--metrics",
    metavar="NAMES",
    help="Compute these over all records, in the place of the job's metrics, e.g. f1_macro,roc_auc.",
)
@click.option(
    "--confusion",
    metavar="FILE",
    help="Write the confusion matrix: a table if it ends in .csv, a picture if in .svg or .png.",
)
@json_option
def test(
    phase: str,
    steps: int | None,
    metrics: str | None,
    confusion: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Measure the performance of a checkpoint.

    Its values, by name of param, are put into the test net, and that reads the job's records; the figures are the same
    for any number of workers. Exit codes are those of run.
    """
    from singa_dask.cli import job
    from singa_dask.conf.watched import CONFUSION
    from singa_dask.data import fs
    from singa_dask.inference.stored import PHASES
    from singa_dask.observe.figure import draw_confusion

    started = time.perf_counter()
    if confusion and not confusion.lower().endswith((".csv", ".svg", ".png")):
        raise click.UsageError(f"--confusion {confusion}: expected a file that ends in .csv, .svg or .png.")
    net = _stored_net(quiet=quiet, **given)
    name = {"test": "test", "val": "validation"}[phase]
    names = net.read.job.metrics if metrics is None else [each.strip() for each in metrics.split(",") if each.strip()]
    with _ends_at_once():
        tested = net.test(PHASES[phase], steps, metrics=[*names, *([CONFUSION] if confusion else [])])
    if confusion:
        if len(tested.matrices) > 1:
            raise ConfigError(f"--confusion: the net has several, {', '.join(tested.matrices)}. See sd.test.")
        [counts] = tested.matrices.values()
        classes = next((names for names in tested.class_names if len(names) == len(counts)), ())
        content = draw_confusion(counts, classes or list(map(str, range(len(counts)))), confusion[-4:].lower())
        fs.write_atomic(fs.absolute(confusion), content)
    outputs = job.outputs([tested.net])
    summary = {
        "job": net.read.job.name,
        "state": "done",
        "phase": name,
        "batches": tested.n_batches,
        "records": tested.n_records,
        "seconds": round(time.perf_counter() - started, 3),
        "bad_records": tested.bad_records,
        "checkpoint": tested.checkpoints,
        name: {**tested.metrics, **{layer: matrix.tolist() for layer, matrix in tested.matrices.items()}},
        **({"outputs": outputs} if outputs else {}),
    }
    if not quiet:
        if tested.bad_records:
            echo(f"{tested.bad_records} bad records were passed over", err=True)
        size = f"{tested.n_batches} batches, {tested.n_records} records"
        echo(f"{name.capitalize()}: {observe.show_metrics(tested.metrics)}  ({size})", err=True)
        job.show_outputs(outputs)
    if as_json:
        echo(observe.to_json(summary))


LENGTH = 1000
"""Characters to write."""


@click.command()
@job_options
@click.option(
    "--init-from",
    metavar="URL",
    multiple=True,
    help="Take the values of this checkpoint instead of the job's checkpoint_path: a run directory, a step of it, or a "
    "file or workspace of SINGA's. Repeatable; later ones win.",
)
@click.option(
    "--length",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"Characters to write; {LENGTH} if not given, or test_steps of a job whose net writes.",
)
@click.option("--seed-text", metavar="TEXT", default="", help="Read this first; without it, a character by chance.")
@click.option(
    "--temperature",
    metavar="T",
    type=click.FloatRange(min=0),
    help="1 draws as the net has learnt; less, likely characters more often; at 0 only the likeliest.",
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Draw differently; short for --set seed=N.")
@click.option("--out", metavar="URL", help="Write to a file, not to standard output.")
def sample(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    init_from: tuple[str, ...],
    length: int | None,
    seed_text: str,
    temperature: float | None,
    seed: int | None,
    out: str | None,
) -> None:
    """Let a trained net write text, a character at a time.

    JOB is the one that trained it, from CharRNN to SoftmaxLoss; or one whose net writes, from RNNDummy to
    CharRNNOutput, as SINGA's sample.conf. Every character is read back as the next one, and recurrent layers go on
    from their state. The same seed gives the same text.
    """
    from singa_dask.cli import job
    from singa_dask.data import fs
    from singa_dask.inference.sampling import sample as write_sample
    from singa_dask.inference.sampling import sampling_job, writes
    from singa_dask.jobs.checking import check

    read = job.read(job_file, sets if seed is None else (*sets, f"seed={seed}"), cluster_file)
    if not (init_from or read.job.checkpoint_path):
        raise click.UsageError("the net has no values. Give a checkpoint: --init-from, or checkpoint_path in the job.")
    if not writes(read.job):
        check(read, init_from=init_from, check_sources=False)
    elif length is None:
        length = read.job.test_steps or None
    job.warn(read, strict=strict)
    writing = sampling_job(read.job, temperature)
    with contextlib.ExitStack() as stack:
        file = None
        if out:
            opened = stack.enter_context(fs.open(fs.absolute(out), "wb"))
            file = stack.enter_context(io.TextIOWrapper(opened, encoding="utf-8", newline=""))
        try:
            write_sample(writing, init_from, LENGTH if length is None else length, seed_text, file)
        except ConfigError as error:
            raise read.locate(error) from None


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
    from singa_dask.cli import job
    from singa_dask.cli.tasks import reported, shown
    from singa_dask.inference.stored import HERE, StoredNet, workers_of

    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    if not (init_from or read.job.checkpoint_path):
        raise ConfigError(
            "there is no checkpoint. Give one with --init-from: a run directory, a step of it, or a file of "
            "SINGA's; or as checkpoint_path in the job."
        )

    @contextlib.contextmanager
    def chosen_workers() -> Iterator[Workers]:
        with chosen_cluster(workers, scheduler, scheduler_file, wait, quiet) as cluster:
            yield HERE if cluster is None else workers_of(*cluster, published=not workers)

    def show(compute: Computation) -> Computation:
        run_shown = shown(compute, lambda result: result.task.index, quiet)
        return lambda parts: iter(run_shown(parts))

    return StoredNet(read, init_from, chosen_workers, show=show, show_written=partial(reported, "written", quiet=quiet))


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
