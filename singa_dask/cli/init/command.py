"""``init``: a job file for existing data."""

from __future__ import annotations

import dataclasses
import posixpath
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from singa_dask.cli.options import cluster_options
from singa_dask.cli.output_options import output_option, overwrite_option
from singa_dask.cli.printing import echo
from singa_dask.cli.reading import join_names, mark_options, names_option, text_options
from singa_dask.errors import ConfigError, DataError
from singa_dask.shown import by_shape, plural
from singa_dask.wording import listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from singa_dask.survey.counts import CountFile
    from singa_dask.survey.options import SurveyOptions, UnsureError
    from singa_dask.survey.results import Baseline, Note, OutputSurvey, RecordSurvey, TextSurvey

NETS = ("mlp", "convnet", "word-rnn", "char-rnn")
# maximum number of features and classes that are listed
MAX_FEATURES, MAX_CLASSES = 6, 20


@click.command()
@click.argument("data", metavar="DATA")
@output_option("-o", "--out", metavar="FILE", default="job.yaml", show_default=True, help="Job file to write.")
@click.option("--net", type=click.Choice(NETS), help="Kind of net; by default chosen by the data.")
@click.option("--test", metavar="URL", default="", help="Test set; by default searched beside DATA.")
@click.option("--backend", metavar="NAME", default="", help="Format of DATA; by default detected.")
@click.option(
    "--label", metavar="NAME", multiple=True, help="Column, key or array with classes; or position, first or last."
)
@click.option("--target", metavar="NAME", multiple=True, help="Column with numbers to predict. Both are repeatable.")
@names_option("--features", "Columns to learn from: names or patterns, by commas.")
@click.option("--text", metavar="NAME", default="", help="Column of texts, to learn from its words.")
@names_option("--drop", "Columns to leave out: names or patterns, by commas.")
@click.option(
    "--category", metavar="NAME", multiple=True, help="Column whose values are names, such as codes 01234. Repeatable."
)
@text_options
@click.option("--missing", metavar="WHAT", default="", help="Fill for missing features: error, skip, mean or a number.")
@mark_options
@names_option("--classes", "Values of the label in the order of the classes.")
@click.option(
    "--lags",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    help="For time series: add the last N values of the predicted columns to each record.",
)
@click.option(
    "--test-split",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="Share of the records to test on, if there is no test set.",
)
@click.option(
    "--split-by",
    metavar="NAME",
    default="",
    help="Column, such as customer_id, whose values are never in both training and test set.",
)
@click.option(
    "--copy/--no-copy",
    default=False,
    help="Write files of training and test set, instead of reading both from DATA.  [default: no-copy]",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the job, and of the split.")
@overwrite_option
@cluster_options("Count the values of a table of more than 256 MiB on the workers of this Dask scheduler.")
@click.pass_context
def init(
    context: click.Context, /, data: str, out: str, scheduler: str | None, scheduler_file: str | None, **others: Any
) -> None:
    """Write a job file for data.

    DATA is a store of labelled records in any supported format, a table in CSV, Parquet, JSON or Excel, a folder with a
    folder of pictures for each class, a directory with a training set, or a text. The job has the right shape, batch
    size, scaling and number of classes, and comments on what you may want to change. Its net is a perceptron (mlp), a
    convolutional net for images, a recurrent net of words (word-rnn) for a column of texts, or of characters (char-rnn)
    for a text.

    A test set beside the training set is used if their names match: train and test, or t10k, val, valid, validation,
    dev. Otherwise training and test net read parts of one store, and nothing is copied. --copy writes files of both
    parts beside FILE, or for remote data, such as on HDFS, beside DATA. For pictures these are lists.

    The label is the column of --label, or the only one called label, labels, y, class, target or targets; otherwise the
    command asks. The other columns of numbers and categories are features, and so are the year, month, weekday and hour
    of dates. Ids, constants and texts are left out; --text uses a column of texts. The command prints what it will
    write.
    """
    from singa_dask import fs
    from singa_dask.cli.init.job_file import commands, default_net, write_job
    from singa_dask.fs.outputs import check_output
    from singa_dask.survey.options import SurveyOptions
    from singa_dask.survey.results import RecordSurvey
    from singa_dask.survey.split import copies_folder

    overwrite = context.meta["overwrite"]
    place = check_output(out, [data], overwrite=overwrite, by="--overwrite")
    folder = f"{posixpath.splitext(out)[0]}-data"
    if others["copy"]:
        fs.check_writable(fs.absolute(copies_folder(data, folder)))
    run_tasks = partial(_on_cluster, scheduler, scheduler_file) if scheduler or scheduler_file else None
    surveyed, options = _surveyed(data, SurveyOptions(**others, run=run_tasks), folder)
    net = options.net or default_net(surveyed)
    _check_fits(surveyed, net)
    _tell(surveyed, net)
    if options != SurveyOptions(**others) and not click.confirm(f"Write {out}?", default=True, err=True):
        return
    if isinstance(surveyed, RecordSurvey) and surveyed.write:
        folder = copies_folder(surveyed.source, folder)
        if fs.exists(fs.absolute(folder)) and not overwrite:
            raise ConfigError(f"{folder}: exists already. Pass --overwrite to replace its files.")
        surveyed.write(fs.absolute(folder))
    command = shlex.join(["singa-dask", "init", data, *_arguments(options)])
    fs.write_atomic(place, write_job(surveyed, net, out, command, run_tasks is not None))
    run, then = commands(surveyed, net, out, run_tasks is not None)
    echo(f"{out}: a job with net {net}. Next:\n  {run}\n  {then}", err=True)


def _on_cluster(
    scheduler: str | None, scheduler_file: str | None, tasks: Sequence[CountFile], about: int
) -> Iterator[Any]:
    """Run tasks on the Dask cluster, yield their results, and show how many records are counted."""
    from singa_dask import runtime
    from singa_dask.cli.tasks import RecordCounter

    with runtime.connect(scheduler, scheduler_file) as client:
        runtime.check_seen(client, [file.url for file in tasks[0].files])
        echo(f"counting all records of {plural(len(tasks[0].files), 'file')} on the Dask workers ...", err=True)
        with RecordCounter("counted", about) as counter:
            for place, counts in runtime.on_dask(client)(tasks):
                counter.advance(max((each.n for each in counts.values()), default=0))
                yield place, counts


def _surveyed(data: str, options: SurveyOptions, folder: str) -> tuple[RecordSurvey | TextSurvey, SurveyOptions]:
    """Inspect data, ask open questions on a terminal, and return options with the answers."""
    from singa_dask.survey.options import UnsureError
    from singa_dask.survey.survey import survey

    while True:
        try:
            return survey(data, options, folder), options
        except UnsureError as error:
            if not sys.stdin.isatty():
                raise
            options = dataclasses.replace(options, **_ask(error))
        except DataError as error:
            if not error.wants("label"):
                raise
            raise error.saying("Pass --label NAME") from None


def _ask(error: UnsureError) -> dict[str, Any]:
    for number, (text, _) in enumerate(error.choices, 1):
        echo(f"  {number}  {text}", err=True)
    question = f"{error.question[0].upper()}{error.question[1:]} Number"
    answer = click.prompt(question, type=click.IntRange(1, len(error.choices)), err=True)
    return error.choices[answer - 1][1]


def _arguments(options: SurveyOptions) -> list[str]:
    """Return the words of a command line with the options that differ from their defaults."""
    from singa_dask.survey.options import SurveyOptions

    words = list[str]()
    for name, value in vars(options).items():
        option = f"--{name.replace('_', '-')}"
        if name == "run" or value == getattr(SurveyOptions(), name):
            continue
        if name in ("label", "target", "category"):
            words += [f"{option}={each}" for each in value]
        elif isinstance(value, bool):
            words.append(option if value else f"--no-{name}")
        else:
            words.append(f"{option}={join_names(value) if isinstance(value, tuple) else value}")
    return words


def _check_fits(surveyed: RecordSurvey | TextSurvey, net: str) -> None:
    from singa_dask.cli.init.text_job import UNROLL
    from singa_dask.survey.arrays import MIN_SIDE
    from singa_dask.survey.results import RecordSurvey, TextSurvey

    fault = ""
    if isinstance(surveyed, TextSurvey) and net != "char-rnn":
        fault = f"a text. Expected records with labels for --net {net}; a text takes char-rnn."
    elif isinstance(surveyed, TextSurvey) and surveyed.n_characters <= UNROLL:
        fault = f"a text of {surveyed.n_characters} characters. Expected more than {UNROLL}."
    elif isinstance(surveyed, RecordSurvey) and net == "convnet" and not surveyed.is_image:
        shape = by_shape(surveyed.shape)
        fault = f"records of {shape} values. --net convnet takes images of at least {MIN_SIDE} x {MIN_SIDE} pixels. "
        fault += "Try --net mlp."
    elif isinstance(surveyed, RecordSurvey) and (net == "word-rnn") != ("texts" in surveyed.reading):
        fault = "--net word-rnn is for a column of texts, which take no other net. Pass --text NAME, or another --net."
    if fault:
        raise ConfigError(f"{surveyed.source}: {fault}")


def _tell(surveyed: RecordSurvey | TextSurvey, net: str) -> None:
    """Print the findings, and what will be written."""
    from singa_dask.cli.init.record_job import hidden_of, training_of
    from singa_dask.survey.results import TextSurvey
    from singa_dask.survey.split import MIN_TESTED

    if isinstance(surveyed, TextSurvey):
        echo(f"{surveyed.source}: {surveyed.n_characters} characters, {surveyed.n_distinct} different ones", err=True)
        return
    n = f"{'about ' * surveyed.is_about}{surveyed.n}"
    echo(f"{surveyed.source}: {n} {surveyed.form} records {surveyed.describe()}", err=True)
    where = ": the first of each file" if surveyed.form in ("csv", "jsonl") else ", in blocks at equal distances"
    lines = [f"{surveyed.n_seen} of them were read{where}"] if surveyed.is_about else []
    if surveyed.is_counted:
        seen = f"{surveyed.n_seen} were read{where}, for kinds of columns and the linear model"
        lines = [f"all of them were counted by the Dask workers; {seen}"]
    lines += [_show(each) for each in surveyed.outputs]
    if "texts" in surveyed.reading:
        lines.append(f"text: {surveyed.features[0]}. {surveyed.measure}")
    elif surveyed.features:
        texts = sum(name in surveyed.reading.get("categories", ()) for name in surveyed.features)
        dates = len(surveyed.reading.get("dates", ()))
        kinds = f"{len(surveyed.features) - texts - dates} of numbers, {texts} of categories"
        kinds += f", {dates} of dates" if dates else ""
        lines.append(f"features: {kinds}: {listed(surveyed.features, MAX_FEATURES)}")
    lines += [f"warning: {text}." for text in surveyed.trouble]
    if surveyed.rule:
        lines.append(f"to test on: {surveyed.split}; chosen as they are read, nothing is copied")
    elif surveyed.split:
        lines.append(f"{surveyed.test_url}: {surveyed.split}; the others in {surveyed.url}")
    else:
        tested = f"{plural(surveyed.n_test, 'record')} to test on"
        lines.append(f"{surveyed.test_url}: {tested}" if surveyed.test_url else "no test set is beside it")
    if 0 < surveyed.n_test < MIN_TESTED:
        lines.append(f"warning: {plural(surveyed.n_test, 'test record')}: too few to judge a net.")
    lines += [line for i, each in enumerate(surveyed.outputs) if (line := _constant(surveyed, each, i))]
    lines += [f"to beat: {text}" for text in surveyed.naive]
    if surveyed.baseline:
        lines.append(f"to beat: {_score(surveyed, surveyed.baseline)}")
    if surveyed.reading.get("lags"):
        lines.append("test judges one step ahead, from true earlier values; predict forecasts later steps from its own")
    batch, steps = training_of(surveyed, net)
    sizes = f" of {' and '.join(map(str, hidden_of(surveyed)))} hidden units" if net == "mlp" else ""
    lines.append(f"net: {net}{sizes}, {plural(steps, 'step')} of {plural(batch, 'record')}")
    for line in [*lines, *_note_lines(surveyed.notes)]:
        echo(line, err=True)


def _note_lines(notes: Sequence[Note]) -> list[str]:
    """Return a table of values that are converted, filled or left out."""
    from singa_dask.cli.printing import align

    rows = [(each.column, str(each.n), each.found, each.done) for each in notes]
    return align([("column", "values", "found", "done"), *rows], right=[1]) if rows else []


def _show(output: OutputSurvey) -> str:
    from singa_dask.survey.columns import show_value

    if not output.is_label:
        return f"target: {output.name}, {output.why}. Mean {output.mean:.6g}, deviation {output.std:.6g}"
    names = output.names or tuple(map(str, range(len(output.counts))))
    parts, total = [quoted(show_value(name)) for name in names], sum(output.counts)
    if total:
        parts = [f"{part} {n} ({n / total:.0%})" for part, n in zip(parts, output.counts, strict=True)]
    return f"label: {output.name}, {output.why}. {len(parts)} classes: {listed(parts, MAX_CLASSES)}"


def _score(surveyed: RecordSurvey, baseline: Baseline) -> str:
    """Return a text with the score of a linear model of the training records."""
    on_tests = "on the same test records"
    of = f" of counted {surveyed.measure.tokens}" if surveyed.measure else ""
    if not surveyed.has_classes:
        how = on_tests if baseline.constants else "when each record is predicted from all others"
        return f"a linear model{of} (ridge regression) is off by about {baseline.score:.6g} {how}"
    how = on_tests if baseline.constants else "by cross-validation"
    area = baseline.roc_auc
    more = "" if area is None else f", with {surveyed.outputs[0].roc_auc} {area:.2f}, where 0.5 is chance"
    return f"a linear model{of} (logistic regression) is right in about {baseline.score:.1%} {how}{more}"


def _constant(surveyed: RecordSurvey, output: OutputSurvey, index: int) -> str:
    """Return a text with the score of the best constant prediction, if possible on the test records."""
    baseline, total = surveyed.baseline, sum(output.counts)
    known = baseline.constants[index:] if baseline else ()
    known = known or ((surveyed.largest,) if surveyed.largest else ())
    where = " on the test records" if known else ""
    if not output.is_label:
        value = f"{known[0] if known else output.std:.6g}"
        return f"to beat: always the mean of {output.name} is off by {value}{where} (root of the mean square)"
    if not (known or total):
        return ""
    return (
        f"to beat: always the largest class is right in {known[0] if known else max(output.counts) / total:.1%}{where}"
    )
