"""``import``: weights of other programs as a checkpoint."""

from __future__ import annotations

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.exports.importing import import_into, read_map
from singa_dask.exports.weights import read_weights


def import_(weights: str, job_file: str, sets: tuple[str, ...], map_file: str | None, partial: bool, out: str) -> None:
    """Make a checkpoint of weights from another program."""
    conf = job.read(job_file, sets, None).job
    echo(import_into(conf, weights, read_weights(weights), out, read_map(map_file), partial))
