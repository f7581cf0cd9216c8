"""Commands that compute with a trained net: ``extract``, ``predict``, ``test`` and ``sample``."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from singa_dask import observe
from singa_dask.cli.clusters import Signals, chosen_cluster
from singa_dask.cli.inference_options import gap_options, parse_missing, threshold_option
from singa_dask.cli.options import (
    json_option,
    quiet_option,
    run_options,
    scheduler_options,
    with_options,
)
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo
from singa_dask.cli.reading import names_option
from singa_dask.errors import ConfigError
from singa_dask.shown import plural
from singa_dask.wording import listed

if TYPE_CHECKING:
    from singa_dask.inference.stored_net import Computation, DistributedNet, Workers


def _inference_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the checkpoint and the workers, and ``--quiet``."""
    return with_options(
        command,
        quiet_option,
        scheduler_options("Use the Dask cluster of this scheduler; its workers must see all files at the same place."),
        click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Use N processes of this machine."),
    )


@click.command()
@run_options
@_inference_options
@click.option("--layer", "layers", metavar="NAME", multiple=True, help="Layer to write the values of. Repeatable.")
@click.option(
    "--predictions",
    is_flag=True,
    help="Write the predicted class and its probability, by the SoftmaxLoss or the --layer.",
)
@click.option(
    "-o",
    "--out",
    metavar="URL",
    required=True,
    help="Store to write; {layer} in it stands for the layer's name. Without it, the names of several layers are put "
    "before the suffix.",
)
@click.option(
    "--to", metavar="BACKEND", help="Format of --out: arrow, csv, kvfile, lmdb, ...; by default chosen by its suffix."
)
@click.option(
    "--phase",
    type=click.Choice(["train", "val", "test"]),
    default="test",
    show_default=True,
    help="Net to use, and its records; the training net runs as in a test.",
)
@click.option("--overwrite", is_flag=True, help="Replace --out if it exists.")
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help="Stop after N batches.")
def extract(
    layers: tuple[str, ...],
    predictions: bool,
    out: str,
    to: str | None,
    overwrite: bool,
    phase: str,
    steps: int | None,
    quiet: bool,
    **source: Any,
) -> None:
    """Write the outputs of layers of a trained net for records.

    RUN is a run directory or a step of it. A JOB.yaml needs --init-from, or checkpoint_path.

    Each record is read once, in file order, and becomes one record, with its label if it has one. A SoftmaxLoss writes
    its probabilities. With --predictions a record is (class, probability): a line of CSV is label,class,probability.
    The output is the same for any number of workers, and appears when it is complete.
    """
    from singa_dask.conf.layer import PHASES

    if (predictions and len(layers) > 1) or not (predictions or layers):
        raise click.UsageError("Pass --layer NAME, once or more, or --predictions with at most one --layer.")
    net = _stored_net(quiet=quiet, **source)
    with Signals("stopped"):
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
                echo(f"{url}: {plural(n, 'record')}", err=True)


# suffix -> format of predictions; other names are CSV
FORMS = {
    ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}  # fmt: skip
UNWRITTEN = (".json", ".npy", ".npz", ".pq", ".xls", ".xlsx")


@click.command()
@run_options
@_inference_options
@click.option(
    "--data",
    "urls",
    metavar="URL",
    multiple=True,
    required=True,
    help="Records, without labels: a store, a folder of pictures, or one picture. Repeatable.",
)
@click.option("--backend", metavar="NAME", help="Format of --data; by default detected.")
@click.option(
    "--layer",
    "layers",
    metavar="NAME",
    multiple=True,
    help="Layer to predict from, if several losses compute probabilities. Repeatable, for several labels.",
)
@overwrite_option
@output_option(
    "-o",
    "--out",
    metavar="URL",
    help="Write to this file instead of stdout: .csv, .tsv with tabs, .parquet, .arrow, or .jsonl, JSON lines.",
)
@click.option(
    "--topk", metavar="K", type=click.IntRange(min=1), default=1, show_default=True, help="The K likeliest classes."
)
@click.option("--proba", is_flag=True, help="Write a column for each class, with its probability.")
@threshold_option
@names_option("--keep", "Columns of --data to write, too, such as an id; by commas.")
@gap_options
def predict(
    urls: tuple[str, ...],
    backend: str | None,
    layers: tuple[str, ...],
    out: str | None,
    topk: int,
    proba: bool,
    threshold: float | None,
    keep: tuple[str, ...],
    missing: str | float | None,
    unknown: str | None,
    quiet: bool,
    **source: Any,
) -> None:
    """Predict the classes, labels or targets of new records.

    RUN is a run directory or a step of it. A JOB.yaml needs --init-from, or checkpoint_path.

    Writes CSV with a header and a line for each record, in file order. The columns are: the file, or the number of the
    record from 0 on; columns to --keep; name, number and probability of the likeliest class, and of the next ones with
    --topk K; or, with --proba, the probability of each class. With several --layer, there are such columns for each
    layer. A SigmoidCrossEntropyLoss has a column with the probability of each label. A net that predicts numbers has a
    column for each target.

    Records go through the test net. Numbers are normalised and images are scaled as for the test net's own records.
    """
    from singa_dask import fs
    from singa_dask.conf import Phase
    from singa_dask.data.tables.fill_counts import FillCounts
    from singa_dask.fs.outputs import check_output
    from singa_dask.inference.predicted_layers import predicted_layer, predicts_targets
    from singa_dask.inference.stored_records import StoredRecords
    from singa_dask.inference.value_files import csv_lines, encoded

    if proba and topk > 1:
        raise click.UsageError("--proba writes the probabilities of all classes. Leave --topk out.")
    if threshold is not None and (proba or topk > 1):
        raise click.UsageError("--threshold chooses one of two classes. Leave --proba and --topk out.")
    net = _stored_net(quiet=quiet, **source)
    for layer in (layers or (predicted_layer(net.read.job, Phase.TEST),)) if proba else ():
        if predicts_targets(net.read.job, Phase.TEST, layer):
            raise ConfigError(f"--proba: layer {layer!r} predicts numbers, not classes. Leave --proba out.")
    reading = {key: value for key, value in (("missing", missing), ("unknown", unknown)) if value is not None}
    records = [StoredRecords(url, backend, named=f"--data {url}", reading=reading) for url in urls]
    if out:
        check_output(out, [*urls, source["job_file"]], overwrite=True, by="--overwrite")
        if out.lower().endswith(UNWRITTEN):
            raise ConfigError(f"{out}: predictions are written to files in {listed(list(FORMS))}.")
    suffix = os.path.splitext(out.lower())[1] if out else ""
    form = FORMS.get(suffix, "csv")
    with Signals("stopped"):
        n_best = 0 if proba else topk
        values = net.values(layers, records, topk=n_best, keep=keep, form=form, threshold=threshold)
    for each in values.stores if not quiet else ():
        if not each.count:
            echo(f"{each.url}: 0 records", err=True)
        if each.first:
            echo(f"{each.url}: the first {each.first} records are only history and not predicted", err=True)
        if each.n_ahead:
            echo(
                f"{each.url}: the last {each.n_ahead} records are predicted, each from the predictions before it",
                err=True,
            )
    if out:
        content = encoded(values.table(as_texts=form == "csv"), form, "\t" if suffix == ".tsv" else ",")
        fs.write_atomic(fs.absolute(out), content)
    else:
        for lines in csv_lines(values.table(as_texts=True)):
            echo(lines, nl=False)
    if quiet:
        return
    if out:
        written = "" if suffix in FORMS else ", as CSV"
        echo(f"{out}: {plural(sum(each.count for each in values.stores), 'record')}{written}", err=True)
    if form != "csv" and values.texts:
        echo(f"columns that stay text, as in CSV: {listed(values.texts)}", err=True)
    for line in FillCounts.total(each.filled for each in values.stores).lines():
        echo(line, err=True)


@click.command()
@run_options
@_inference_options
@click.option(
    "--data",
    "urls",
    metavar="URL",
    multiple=True,
    help="Test on these records with labels, each once, instead of the job's. Repeatable: all are tested together.",
)
@click.option("--backend", metavar="NAME", help="Format of --data; by default detected.")
@click.option(
    "--missing",
    metavar="WHAT",
    callback=parse_missing,
    help="Fill for missing numbers in a table: error, mean (of the training data), or a number.",
)
@click.option(
    "--unknown",
    type=click.Choice(["error", "ignore"]),
    help="Unknown or missing categories in a table: error, or ignore to encode them as zeros.",
)
@click.option("--phase", type=click.Choice(["test", "val"]), default="test", show_default=True, help="Which net.")
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=0),
    help="Batches; 0 uses every record once. By default the job's test_steps, or validate_steps.",
)
@names_option("--metrics", "Metrics over all records instead of the job's, e.g. f1_macro,roc_auc.")
@overwrite_option
@output_option(
    "--confusion",
    metavar="FILE",
    help="Write the confusion matrix: a table as .csv, a picture as .svg or .png.",
)
@json_option
def test(
    urls: tuple[str, ...],
    backend: str | None,
    missing: str | float | None,
    unknown: str | None,
    phase: str,
    steps: int | None,
    metrics: tuple[str, ...],
    confusion: str | None,
    as_json: bool,
    quiet: bool,
    **source: Any,
) -> None:
    """Measure the performance of a checkpoint.

    RUN is a run directory or a step of it. A JOB.yaml needs --init-from, or checkpoint_path.

    The test net gets its values, by name of param, and reads the job's records, or those of --data. The metrics are
    the same for any number of workers. See run for exit codes.
    """
    from singa_dask import fs
    from singa_dask.conf.layer import PHASES
    from singa_dask.conf.metrics import CONFUSION
    from singa_dask.inference.stored_records import StoredRecords
    from singa_dask.inputs.writers import Writer
    from singa_dask.observe.pictures.figure import draw_confusion

    started = time.perf_counter()
    if confusion and not confusion.lower().endswith((".csv", ".svg", ".png")):
        raise click.UsageError(f"--confusion {confusion}: expected a file that ends in .csv, .svg or .png.")
    if CONFUSION in metrics and not confusion:
        raise click.UsageError(f"--metrics {CONFUSION}: it is a table. Write it to a file: --confusion FILE.")
    reading = {key: value for key, value in (("missing", missing), ("unknown", unknown)) if value is not None}
    if not urls and (reading or backend):
        raise click.UsageError("--backend, --missing and --unknown are for --data.")
    if urls and steps:
        raise click.UsageError("--data is tested whole. Leave --steps out.")
    net = _stored_net(quiet=quiet, **source)
    name = {"test": "test", "val": "validation"}[phase]
    names = metrics or net.read.job.metrics
    with Signals("stopped"):
        records = [StoredRecords(url, backend, True, f"--data {url}", reading=reading) for url in urls]
        tested = net.test(PHASES[phase], steps, records, [*names, *([CONFUSION] if confusion else [])])
    if confusion:
        if len(tested.matrices) > 1:
            raise ConfigError(f"--confusion: the net has several, {', '.join(tested.matrices)}. See sd.test.")
        [counts] = tested.matrices.values()
        classes = next((names for names in tested.class_names if len(names) == len(counts)), ())
        content = draw_confusion(counts, classes or list(map(str, range(len(counts)))), confusion[-4:].lower())
        fs.write_atomic(fs.absolute(confusion), content)
    written = {
        layer.conf_name: [fs.absolute(url) for url in layer.urls() if fs.exists(url, layer.options.storage_options)]
        for layer in tested.net.all_layers
        if isinstance(layer, Writer)
    }
    outputs = {layer: urls for layer, urls in written.items() if urls}
    summary = {
        "job": net.read.job.name,
        "state": "done",
        "phase": name,
        "batches": tested.n_batches,
        "records": tested.n_records,
        "seconds": round(time.perf_counter() - started, 3),
        "bad_records": tested.bad_records,
        **tested.filled.to_dict(),
        "checkpoint": tested.checkpoints,
        name: {**tested.metrics, **{layer: matrix.tolist() for layer, matrix in tested.matrices.items()}},
        **({"outputs": outputs} if outputs else {}),
    }
    if not quiet:
        if tested.bad_records:
            echo(f"skipped or replaced: {plural(tested.bad_records, 'bad record')}", err=True)
        for line in tested.filled.lines():
            echo(line, err=True)
        size = f"{plural(tested.n_batches, 'batch', 'batches')}, {plural(tested.n_records, 'record')}"
        echo(f"{name.capitalize()}: {observe.show_metrics(tested.metrics)}  ({size})", err=True)
        for layer, written_urls in outputs.items():
            echo(f"layer {layer}: wrote {', '.join(written_urls)}", err=True)
    if as_json:
        echo(observe.to_json(summary))


LENGTH = 1000
"""Default number of characters to write."""


@click.command()
@run_options
@click.option(
    "--length",
    metavar="N",
    type=click.IntRange(min=0),
    help=f"Characters to write; by default {LENGTH}, or test_steps of a job whose net writes.",
)
@click.option("--seed-text", metavar="TEXT", default="", help="Text to read first; by default a random character.")
@click.option(
    "--temperature",
    metavar="T",
    type=click.FloatRange(min=0),
    help="1 draws characters as the net has learned; lower prefers likely ones; 0 takes the likeliest.",
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), help="Random seed; short for --set seed=N.")
@overwrite_option
@output_option("-o", "--out", metavar="URL", help="Write to this file instead of stdout.")
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
    """Write text with a trained net, a character at a time.

    RUN is a run directory or a step of it. A JOB.yaml needs --init-from, or checkpoint_path. It is the job that trained
    the net, from CharRNN to SoftmaxLoss; or one whose net writes, from RNNDummy to CharRNNOutput, like SINGA's
    sample.conf. Each character is the next input, and recurrent layers keep their state.
    The same seed gives the same text.
    """
    from singa_dask import fs
    from singa_dask.cli import job
    from singa_dask.inference.sampling import sample as write_sample
    from singa_dask.inference.sampling import sampling_job, writes
    from singa_dask.jobs.checks import check

    job_file, values = job.of_run(job_file, init_from)
    read = job.read(job_file, sets if seed is None else (*sets, f"seed={seed}"), cluster_file)
    if not (values or read.job.checkpoint_path):
        raise click.UsageError("the net has no values. Pass --init-from, or set checkpoint_path in the job.")
    if not writes(read.job):
        check(read, init_from=values, check_sources=False)
    elif length is None:
        length = read.job.test_steps or None
    job.warn(read, strict=strict)
    writing = sampling_job(read.job, temperature)
    with contextlib.ExitStack() as stack:
        file = None
        if out:
            opened = stack.enter_context(fs.open(fs.absolute(out), "wb"))
            file = stack.enter_context(io.TextIOWrapper(opened, encoding="utf-8", newline=""))
        with read.located():
            write_sample(writing, values, LENGTH if length is None else length, seed_text, file)


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
) -> DistributedNet:
    """Print the warnings on a job, and return its trained net.

    Raises a `ConfigError` if there is no checkpoint.
    """
    from singa_dask.cli import job
    from singa_dask.cli.tasks import reported, shown
    from singa_dask.inference.stored_net import HERE, DistributedNet, workers_of

    job_file, init_from = job.of_run(job_file, init_from)
    read = job.read(job_file, sets, cluster_file)
    job.warn(read, strict=strict, quiet=quiet)
    if not (init_from or read.job.checkpoint_path):
        raise ConfigError(
            "there is no checkpoint. Pass --init-from with a run directory, a step of it, or a SINGA file; or set "
            "checkpoint_path in the job."
        )

    @contextlib.contextmanager
    def chosen_workers() -> Iterator[Workers]:
        with chosen_cluster(workers, scheduler, scheduler_file, wait, quiet) as cluster:
            yield HERE if cluster is None else workers_of(*cluster, published=not workers)

    def show(compute: Computation) -> Computation:
        run_shown = shown(compute, lambda result: result.task.index, quiet)
        return lambda parts: iter(run_shown(parts))

    return DistributedNet(
        read,
        init_from,
        chosen_workers,
        show=show,
        show_written=partial(reported, "written", quiet=quiet),
        log=(lambda line: None) if quiet else partial(echo, err=True),
    )
