"""``serve``: predictions of a trained net over HTTP."""

from __future__ import annotations

import ipaddress
import os
import signal

import click

from singa_dask import serving
from singa_dask.cli.clusters import Signals
from singa_dask.cli.output import echo

POSITIVE = click.FloatRange(min=0, min_open=True)


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--host", metavar="HOST", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen at; 0 for any that is free.",
)
@click.option("--step", metavar="N", type=click.IntRange(min=0), help="Step of the checkpoint; the newest by default.")
@click.option("--job", "job_file", metavar="JOB.yaml", help="Take the net of this job file, not the one of the run.")
@click.option("--layer", metavar="NAME", help="Layer to predict from, of requests that name none.")
@click.option("--cpu", is_flag=True, help="Compute on the CPU whatever the job says; for one with gpu or cuDNN.")
@click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(min=0),
    help="Threads that compute a layer, 0 for one a core; as the job says by default. For a small net 1 is fastest.",
)
@click.option(
    "--max-batch",
    metavar="N",
    type=click.IntRange(1, 65536),
    default=64,
    show_default=True,
    help="Records of requests that are computed together.",
)
@click.option(
    "--max-wait-ms",
    metavar="MS",
    type=click.FloatRange(0, 10_000),
    default=0.0,
    show_default=True,
    help="How long a batch that is not full waits for more records.",
)
@click.option(
    "--max-queue",
    metavar="N",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Requests that are answered at a time; others get status 429.",
)
@click.option(
    "--max-connections",
    metavar="N",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Connections that are open at a time, idle ones too; others get status 503.",
)
@click.option(
    "--max-records",
    metavar="N",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Records of a request.",
)
@click.option(
    "--max-mb",
    metavar="MB",
    type=POSITIVE,
    default=64.0,
    show_default=True,
    help="Size of the body of a request, and of the values of an answer.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=POSITIVE,
    default=30.0,
    show_default=True,
    help="Time for a request; those that are late get status 408 or 503.",
)
def serve(
    run: str,
    host: str,
    port: int,
    step: int | None,
    job_file: str | None,
    layer: str | None,
    cpu: bool,
    threads: int | None,
    max_batch: int,
    max_wait_ms: float,
    max_queue: int,
    max_connections: int,
    max_records: int,
    max_mb: float,
    timeout: float,
) -> None:
    """Answer requests for predictions over HTTP.

    RUN is a run directory or a step of it; with --job any checkpoint, also of SINGA. POST /predict takes records as
    JSON, as an array of NumPy or as a picture; GET /health and GET /model describe the server. SIGTERM or Ctrl-C ends
    it once the requests that have arrived are answered, a second one at once. There is no authentication. Needs pip
    install 'singa-dask[serve]'.
    """
    from singa_dask.inference import load_model

    # the package that it needs is looked for before the net is read
    server_type = serving.ModelServer
    model = load_model(run, step, job=job_file, cpu=cpu, threads=threads)
    max_bytes = int(max_mb * (1 << 20))
    limits = serving.Limits(
        max_batch, max_wait_ms / 1000, max_queue, max_records, max_bytes, timeout, max_connections=max_connections
    )
    server = server_type(model, limits, host, port, layer)
    if not is_loopback(host):
        echo(f"warning: {host} may be reached by others, and there is no authentication.", err=True)
    is_ending = False

    def end(signal_name: str) -> None:
        """Stop the server at the first signal, and the process at the second."""
        nonlocal is_ending
        if is_ending:
            os._exit(128 + signal.Signals[signal_name])
        is_ending = True
        echo(f"{signal_name}: ending.", err=True)
        server.stop()

    with Signals() as signals:
        signals.hand_to(end)
        with server:
            echo(f"{model.name}, step {model.step}: {server.url}")
            server.wait()
    counts = server.app.counts()
    echo(
        f"{counts['requests']} requests, {counts['errors']} of them errors; {counts['records']} records in "
        f"{counts['batches']} batches",
        err=True,
    )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
