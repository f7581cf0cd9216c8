"""``serve``: predictions of a trained net over HTTP."""

from __future__ import annotations

import ipaddress
import os
import signal

from singa_dask import serving
from singa_dask.cli.echo import echo
from singa_dask.cli.signals import Signals
from singa_dask.inference import load_model


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
    """Answer requests for predictions until a signal comes."""
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
