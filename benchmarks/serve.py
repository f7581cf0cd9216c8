"""Requests a second and their latency: ``singa-dask serve``, beside the same net in ONNX by Starlette and onnxruntime.

``python -m benchmarks.serve [--requests N] [--rounds N] [--threads N]``

The perceptron of the digits, one record of 784 integers as JSON a request, from a process of its own with 1 and 32
connections. Servers run in turn. CPU time is that of the server, and depends least on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import singa_dask as sd
from singa_dask.data.stores import open_store

JOB, RECORDS = "configs/digits/mlp.yaml", "data/digits/test.arrow"
N_CONNECTIONS = (1, 32)
TIMEOUT_S = 120


def main() -> None:
    """Train the net, measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of the net")
    parser.add_argument("--onnx", help=argparse.SUPPRESS)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.onnx:
        serve_onnx(given.onnx)
    elif given.client:
        port, n_connections = map(int, given.client.split(","))
        print(json.dumps(ask(port, n_connections, given.requests)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(folder, given.requests, given.rounds, given.threads)


def measure(folder: str, n_requests: int, n_rounds: int, threads: int) -> None:
    """Compare calls, and servers in turn."""
    run = f"{folder}/run"
    sd.train(sd.load(JOB, set={"train_steps": 200, "test_freq": 0}), run_dir=run, progress=False)
    sd.export(run, f"{folder}/net.onnx")
    model, x = sd.load_model(run, threads=threads), pixels()
    for n in (1, 64):
        some = x[:n]
        wall, cpu = timed(lambda: model.predict(some))  # noqa: B023
        print(
            f"Model.predict of {n}: {1e3 * wall:.2f} ms, CPU {1e3 * cpu:.2f} ms; {n / wall:.0f} records/s", flush=True
        )
    me = [sys.executable, "-m"]
    servers = {
        "singa-dask serve": [*me, "singa_dask", "serve", run, "--port", "0", "--threads", str(threads)],
        "Starlette + onnxruntime": [*me, "benchmarks.serve", "--onnx", f"{folder}/net.onnx"],
    }
    for _ in range(n_rounds):
        for name, command in servers.items():
            for n_connections in N_CONNECTIONS:
                print(f"{name}, {n_connections} connections: {figures(command, n_connections, n_requests)}", flush=True)


def timed(call: Callable[[], object], n: int = 200) -> tuple[float, float]:
    """Return the seconds of a call, and those of CPU time, in the mean."""
    call()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(n):
        call()
    return (time.perf_counter() - wall) / n, (time.process_time() - cpu) / n


def figures(command: list[str], n_connections: int, n_requests: int) -> str:
    """Start a server, have a process ask it, and describe how long that took."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip().rpartition(":")[2]
            watched = psutil.Process(process.pid)
            client = [sys.executable, "-m", "benchmarks.serve", "--client", f"{port},{n_connections}"]
            warm = [*client, "--requests", "50"]
            subprocess.run(warm, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
            before = sum(watched.cpu_times()[:2])
            text = subprocess.run(
                [*client, "--requests", str(n_requests)], check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE
            )
            cpu = (sum(watched.cpu_times()[:2]) - before) / n_requests
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)
    found = json.loads(text.stdout)
    return (
        f"{found['rate']:.0f} requests/s, p50 {found['p50']:.1f} ms, p99 {found['p99']:.1f} ms; "
        f"CPU {1e3 * cpu:.2f} ms a request"
    )


def ask(port: int, n_connections: int, n_requests: int) -> dict[str, float]:
    """Send requests, each connection one after the other; return their rate, and percentiles of their latency in ms."""
    requests = [message(record) for record in pixels()[:64]]
    seconds: list[float] = []

    def one(n: int) -> None:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            file = connection.makefile("rb")
            for i in range(n):
                began = time.perf_counter()
                connection.sendall(requests[i % 64])
                receive(file)
                seconds.append(time.perf_counter() - began)

    threads = [threading.Thread(target=one, args=(n_requests // n_connections,)) for _ in range(n_connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return {"rate": len(seconds) / (time.perf_counter() - began), "p50": p50, "p99": p99}


def message(record: Any) -> bytes:
    """Return a request for a prediction."""
    body = json.dumps({"records": [record.tolist()]}).encode()
    head = (
        f"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def receive(file: Any) -> None:
    """Read an answer, which has predictions."""
    status, length = file.readline(), 0
    while (line := file.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    body = file.read(length)
    assert status.startswith(b"HTTP/1.1 200") and b"predictions" in body, (status, body)


def pixels() -> Any:
    """Return test digits."""
    with open_store(RECORDS) as store:
        return store.read_block(store.blocks[0].id)["pixel"]


def serve_onnx(path: str) -> None:
    """Serve an ONNX file, a request at a time, as one would write it by hand."""
    session = onnxruntime.InferenceSession(path)

    async def predict(request: Request) -> JSONResponse:
        records = np.asarray((await request.json())["records"], np.float32)
        (scores,) = session.run(None, {"data": records})
        return JSONResponse({"predictions": scores.argmax(1).tolist()})

    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    app = Starlette(routes=[Route("/predict", predict, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([listening])


if __name__ == "__main__":
    main()
