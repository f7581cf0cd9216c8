"""``serve``: answer requests for predictions over HTTP."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import signal
from typing import Any

import click

from singa_dask import runtime, serving
from singa_dask.cli.clusters import Signals
from singa_dask.cli.inference_options import gap_options, threshold_option
from singa_dask.cli.options import cpu_option, net_option
from singa_dask.cli.printing import echo
from singa_dask.shown import plural

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
    help="Port to listen at; 0 for any free port.",
)
@click.option("--step", metavar="N", type=click.IntRange(min=0), help="Step of the checkpoint; by default the newest.")
@net_option
@click.option("--layer", metavar="NAME", help="Layer to predict from, for requests that name none.")
@threshold_option
@gap_options
@cpu_option
@click.option(
    "--threads",
    metavar="N",
    type=click.IntRange(min=0),
    help="Threads that compute a layer, 0 for one per core; by default the job's. For a small net 1 is fastest.",
)
@click.option(
    "--max-batch",
    metavar="N",
    type=click.IntRange(1, 65536),
    default=64,
    show_default=True,
    help="Records that are computed together.",
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
    help="Requests in progress at a time; others get status 429.",
)
@click.option(
    "--max-connections",
    metavar="N",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    help="Open connections, including idle ones; others get status 503.",
)
@click.option(
    "--max-records",
    metavar="N",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Records in a request.",
)
@click.option(
    "--max-mb",
    metavar="MB",
    type=POSITIVE,
    default=64.0,
    show_default=True,
    help="Size of a request's body, and of the values of an answer.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=POSITIVE,
    default=30.0,
    show_default=True,
    help="Time for a request; late ones get status 408 or 503.",
)
def serve(
    run: str,
    host: str,
    port: int,
    step: int | None,
    job_file: str | None,
    layer: str | None,
    threshold: float | None,
    missing: str | float | None,
    unknown: str | None,
    cpu: bool,
    threads: int | None,
    max_wait_ms: float,
    max_mb: float,
    **limits: Any,
) -> None:
    """Answer requests for predictions over HTTP.

    RUN is a run directory or a step of it; with --job any checkpoint, including SINGA's. POST /predict takes records as
    JSON, as a NumPy array or as a picture; GET /health and GET /model describe the server. SIGTERM or Ctrl-C ends the
    server after the current requests; a second signal ends it at once. There is no authentication. Needs pip install
    'singa-dask[serve]'.
    """
    from singa_dask.cli.job import collect_again
    from singa_dask.inference.model import load_model

    collect_again()
    # raise an error for a missing package before reading the net
    server_type = serving.ModelServer
    model = load_model(run, step, job=job_file, cpu=cpu, threads=threads, missing=missing, unknown=unknown)
    limits |= {"max_wait_s": max_wait_ms / 1000, "max_bytes": int(max_mb * (1 << 20))}
    server = server_type(model, serving.Limits(**limits), host, port, layer, threshold)
    if not is_loopback(host):
        echo(f"warning: others may reach {host}, and there is no authentication.", err=True)
    n_signals = 0

    def end(signal_name: str) -> None:
        """Stop the server at the first signal, and the process at the second."""
        nonlocal n_signals
        n_signals += signal_name not in runtime.NOTICES
        if n_signals > 1:
            os._exit(128 + signal.Signals[signal_name])
        if not server.app.ending:
            echo(f"{signal_name}: shutting down.", err=True)
            server.stop()

    with Signals() as signals:
        signals.hand_to(end)
        with server:
            echo(f"{model.name}, step {model.step}: {server.url}")
            if records := server.app.examples:
                body = shlex.quote(json.dumps({"records": records}, ensure_ascii=False))
                echo(f"try: curl {server.url}/predict -H 'Content-Type: application/json' -d {body}", err=True)
            server.wait()
    counts = server.app.counts()
    echo(
        f"{plural(counts['requests'], 'request')}, {plural(counts['errors'], 'error')}; "
        f"{plural(counts['records'], 'record')} in {plural(counts['batches'], 'batch', 'batches')}",
        err=True,
    )


def is_loopback(host: str) -> bool:
    """Return whether an address is only reachable from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
