"""``export``: a trained net as a file for other programs."""

from __future__ import annotations

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.exports.exporting import export_job, job_of_run


def export(
    run: str,
    out: str,
    format: str | None,
    layers: tuple[str, ...],
    job_file: str | None,
    sets: tuple[str, ...],
    quiet: bool,
) -> None:
    """Write a trained net as a file for other programs."""
    conf = job.read(job_file, sets, None).job if job_file else job_of_run(run, sets)
    done = export_job(conf, run, out, format, layers)
    if quiet:
        return
    for note in done.notes:
        echo(f"note: {note}", err=True)
    for url in done.urls:
        echo(url)
