"""``init``: a job file for existing data."""

from __future__ import annotations

import posixpath
import shlex
import sys

import click

from singa_dask.cli.echo import echo
from singa_dask.cli.init_data import Records, Text, survey
from singa_dask.cli.init_job import NETS, default_net, job_name, write_job
from singa_dask.cli.init_tables import UnknownLabelError
from singa_dask.data import fs
from singa_dask.errors import ConfigError, DataError

__all__ = ["init"]


@click.command()
@click.argument("data", metavar="DATA")
@click.option("-o", "--out", metavar="FILE", default="job.yaml", show_default=True, help="Job file to write.")
@click.option("--net", type=click.Choice(NETS), help="Kind of net; chosen by the data if not given.")
@click.option("--test", "test_data", metavar="URL", default="", help="Test set; looked for beside DATA if not given.")
@click.option("--backend", metavar="NAME", default="", help="Format of DATA; found from the file if not given.")
@click.option("--label", metavar="NAME", default="", help="Column, key or array that is the label, or to predict.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
def init(data: str, out: str, net: str | None, test_data: str, backend: str, label: str, overwrite: bool) -> None:
    """Write a job file for data.

    DATA is a store of records with labels in any format that is read, a table of CSV or Parquet, a folder with a folder
    of pictures for each class, a directory with a training set in it, or a text. The job has the right shape, batch
    size, scaling and number of classes, a comment for what you may want to change, and a perceptron (mlp), a
    convolutional net for images, or a recurrent net of characters (char-rnn) for a text. A test set is taken if it lies
    beside the training set and is called alike: train and test, or t10k, val, valid, validation, dev.

    The label is the column that --label names, or the only one called label, labels, y, class, target or targets; else
    you are asked. If it has numbers that are no classes, they are predicted. The other columns of numbers are features,
    and so are those of strings that are categories. Others, such as dates and the index of a frame, are left out.
    """
    place = fs.absolute(out)
    if fs.exists(place) and not overwrite:
        raise ConfigError(f"{out}: exists already. Expected a new file. Give --overwrite to replace it.")
    try:
        try:
            found = survey(data, test_data, backend, net == "char-rnn", label)
        except UnknownLabelError as error:
            if not sys.stdin.isatty():
                raise
            label = click.prompt("Which field is the label?", type=click.Choice(error.names), err=True)
            found = survey(data, test_data, backend, net == "char-rnn", label)
    except DataError as error:
        named, place = str(error), fs.absolute(data)
        if named.startswith((f"{place}:", f"{place},")):
            named = data + named.removeprefix(place)
        if "could each be the label" in named:
            named = f"{named.partition(' Set user_conf')[0]} Give --label NAME."
        raise DataError(named) from None
    given = {"net": net, "test": test_data, "backend": backend, "label": label}
    net = net or default_net(found)
    _check_fits(found, net)
    options = [f"--{name}={value}" for name, value in given.items() if value]
    command = shlex.join(["singa-dask", "init", data, *options])
    text = write_job(found, net, command).replace(" JOB ", f" {shlex.quote(out)} ")
    fs.write_atomic(place, text.encode())
    _tell(found, net, out)


def _check_fits(found: Records | Text, net: str) -> None:
    if isinstance(found, Text) and net != "char-rnn":
        raise ConfigError(f"{found.url}: a text. Expected records with labels for --net {net}; a text takes char-rnn.")
    if isinstance(found, Records) and net == "convnet" and not found.is_image:
        shape = " x ".join(map(str, found.shape))
        raise ConfigError(f"{found.url}: records of {shape} values. Expected images for --net convnet. Try --net mlp.")


def _tell(found: Records | Text, net: str, out: str) -> None:
    """Print what was found, and what to do next."""
    run, name = f"runs/{job_name(found.url, net)}", shlex.quote(out)
    if isinstance(found, Text):
        echo(f"{found.url}: {found.n_characters} characters, {found.n_distinct} different ones", err=True)
        then = f"singa-dask sample {name} --init-from {run} --length 400"
    else:
        shape = " x ".join(map(str, found.shape))
        echo(
            f"{found.url}: {found.n_records} {found.backend} records of {shape} values "
            + (f"in {found.n_classes} classes" if found.n_classes else f"and {found.reading['target'][0]} to predict"),
            err=True,
        )
        if found.left_out:
            echo(f"columns left out: {found.left_out}", err=True)
        for text in found.trouble:
            echo(f"warning: {text}.", err=True)
        tested = (
            f"{found.test_url}: {found.n_test} records to test on" if found.test_url else "no test set is beside it"
        )
        echo(tested, err=True)
        picture = "PICTURE" if found.backend == "image-folder" else f"NEW{posixpath.splitext(found.url)[1]}"
        then = f"singa-dask predict {name} --init-from {run} --data {picture}"
    echo(f"{out}: a job with net {net}. Next:\n  singa-dask run {name} --run-dir {run}\n  {then}", err=True)
