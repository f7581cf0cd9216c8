"""``graph``: the net of a job file as a picture; nothing is started and no records are read."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import PurePosixPath

import click

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.conf import JobConf, Phase
from singa_dask.data import fs
from singa_dask.errors import ConfigError
from singa_dask.net import NeuralNet
from singa_dask.net.picture import Picture
from singa_dask.runtime.planning.nets import build_nets

PHASES = {"train": Phase.TRAIN, "val": Phase.VALIDATION, "test": Phase.TEST}
FREQUENCIES = {"val": "validate_freq and validate_steps", "test": "test_freq and test_steps"}
TEXTS, DRAWINGS = (".dot", ".json"), (".svg", ".png")
INSTEAD = "-o FILE.dot needs neither."


def graph(
    job_file: str,
    sets: tuple[str, ...],
    cluster_file: str | None,
    strict: bool,
    partitioned: bool,
    phase: str,
    output: str | None,
) -> None:
    """Draw the net of a job file: layers, shapes, parts, bridges."""
    suffix = PurePosixPath(output).suffix if output else ".dot"
    if suffix not in (*TEXTS, *DRAWINGS):
        raise click.UsageError(f"-o {output}: the name must end in {', '.join((*TEXTS, *DRAWINGS))}.")
    read = job.read(job_file, sets, cluster_file)
    conf = read.job if partitioned else alone(read.job)
    try:
        net = build(conf, phase)
    except ConfigError as error:
        raise read.locate(error) from None
    job.warn(read, strict=strict)
    made = Picture.of(net, title(conf, phase))
    text = json.dumps(made.json(), indent=1) + "\n" if suffix == ".json" else made.dot()
    if output is None:
        echo(text, nl=False)
        return
    data = draw(text, suffix, output) if suffix in DRAWINGS else text.encode()
    fs.write_atomic(fs.absolute(output), data)


def alone(conf: JobConf) -> JobConf:
    """Return a job whose groups have one worker each."""
    return conf.model_copy(update={"cluster": conf.cluster.model_copy(update={"nworkers_per_group": 1})})


def build(conf: JobConf, phase: str) -> NeuralNet:
    """Build the net of a phase, shapes only.

    Raises
    ------
    ConfigError
        Something is wrong with the net, or the job has none for this phase.
    """
    nets = build_nets(conf)
    if PHASES[phase] not in nets:
        raise ConfigError(f"this job has no {phase} net. Set {FREQUENCIES[phase]}.")
    return nets[PHASES[phase]]


def title(conf: JobConf, phase: str) -> str:
    """Return the title of the picture."""
    n_workers = conf.cluster.nworkers_per_group
    return f"{conf.name}: {phase} net of {f'a group of {n_workers} workers' if n_workers > 1 else 'one worker'}"


def draw(text: str, suffix: str, output: str) -> bytes:
    """Draw a picture by Graphviz.

    Raises
    ------
    ConfigError, click.ClickException
        It is not installed, or fails.
    """
    try:
        graphviz = importlib.import_module("graphviz")
    except ImportError:
        message = f"-o {output}: pictures are drawn through the Python package graphviz. Install it: "
        raise ConfigError(f"{message}pip install 'singa-dask[graph]'. {INSTEAD}") from None
    try:
        drawn: bytes = graphviz.Source(text).pipe(format=suffix.removeprefix("."))
    except graphviz.ExecutableNotFound:
        message = f"-o {output}: pictures are drawn by Graphviz, whose program dot is not on the PATH. Install it, "
        raise ConfigError(f"{message}e.g. by apt install graphviz. {INSTEAD}") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode(errors="replace").strip()
        raise click.ClickException(f"-o {output}: Graphviz failed: {said or error}. {INSTEAD}") from None
    return drawn
