"""AllReduce among many processes of one host: what a process sends, holds open and computes for a step.

Each of P forked processes has a worker and a server. They exchange gradients and values, and compute nothing else. The
messages, bytes, sockets and seconds of CPU of each process are counted. ``tiny`` has 25,450 params, ``mlp`` 12 million.
``python -m benchmarks.scale [P ...] [--net NAME] [--steps N] [--direct | --tree]``
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import threading
import time
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.exchange import Exchange
from benchmarks.jobs import mnist_mlp
from singa_dask.comm import tree
from singa_dask.comm.message import Message
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf
from singa_dask.runtime import plan_processes
from singa_dask.runtime.units.run_unit import run_unit
from singa_dask.runtime.units.unit_host import UnitHost
from singa_dask.training import ALGORITHMS

WARM = 5


class Counted(Transport):
    """A transport that counts messages."""

    n_sent = 0

    def send(self, address: str, message: Message) -> None:
        self.n_sent += 1
        super().send(address, message)


HOSTS: list[UnitHost] = []
COUNTS: list[tuple[float, ...]] = []


def count() -> tuple[float, ...]:
    """Return seconds, seconds of CPU, messages and bytes so far."""
    transport = HOSTS[0].router.transport
    assert isinstance(transport, Counted)
    return time.perf_counter(), time.process_time(), transport.n_sent, transport.sent_bytes


@ALGORITHMS.register("CountedExchange")
class CountedExchange(Exchange):
    """An exchange that notes the counts of its process after the first steps."""

    def train_one_batch(self, step: int) -> None:
        super().train_one_batch(step)
        if step == WARM:
            COUNTS.append(count())


def n_sockets() -> int:
    """Return the number of sockets of this process."""
    names = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return sum(os.readlink(name).startswith("socket:") for name in names if os.path.lexists(name))


def run_process(job: JobConf, process: int, folder: str, pipe: Connection) -> None:
    """Run one process of a job; send its address, then its counts a step."""
    before = n_sockets()
    transport = partial(Counted, "tcp://127.0.0.1", incarnation=0, token="of the benchmark")
    host = UnitHost("scale", process, job, transport, lambda event: None, threads=1)
    HOSTS.append(host)
    pipe.send(host.address)
    host.router.connect(pipe.recv())
    reports: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda unit=unit: reports.append(run_unit(host, unit, folder, None, ())))  # type: ignore[misc]
        for unit in host.local
    ]
    for thread in threads:
        thread.start()
    threads[0].join()
    last, sockets = count(), n_sockets() - before
    for thread in threads:
        thread.join()
    if {report["state"] for report in reports} == {"done"}:
        pipe.send((*np.subtract(last, COUNTS[0]) / (job.train_steps - WARM - 1), sockets))
    else:
        pipe.send(reports)
    pipe.recv()  # all have ended
    host.close()


def measure(job: JobConf, folder: str) -> np.ndarray[Any, Any]:
    """Run a job; return what each process has counted."""
    context = multiprocessing.get_context("fork")
    n = len(plan_processes(job.cluster).processes)
    pipes = [context.Pipe() for _ in range(n)]
    ends = [context.Process(target=run_process, args=(job, i, folder, pipes[i][1]), daemon=True) for i in range(n)]
    for end in ends:
        end.start()
    addresses = [pipe.recv() for pipe, _ in pipes]
    for pipe, _ in pipes:
        pipe.send(addresses)
    counts = [pipe.recv() for pipe, _ in pipes]
    for (pipe, _), end in zip(pipes, ends, strict=True):
        pipe.send(None)
        end.join()
    return np.array(counts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("processes", type=int, nargs="*", default=[4, 8, 16, 32])
    parser.add_argument("--net", choices=["tiny", "mlp"], default="tiny")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--direct", action="store_true", help="without summing on the way")
    parser.add_argument("--tree", action="store_true", help="with it, however large the net")
    given = parser.parse_args()
    if given.direct:
        tree.MIN_PROCESSES = 1 << 30
    if given.tree:
        tree.MAX_DIRECT = 0
    print(
        "processes   a process and step: ms   ms of CPU   messages (most)   MB   of 2(P-1)/P x params   sockets (most)"
    )
    for n in given.processes:
        with tempfile.TemporaryDirectory() as folder:
            made = mnist_mlp(folder, given.steps).model_dump(mode="json")
            made["cluster"] = {"nworkers_per_group": n, "nservers_per_group": n}
            layers = made["neuralnet"]["layer"]
            layers[0]["store_conf"]["batchsize"] = [n]
            if given.net == "tiny":
                made["neuralnet"]["layer"] = layers = [*layers[:3], *layers[-2:]]
                layers[1]["innerproduct_conf"]["num_output"] = 32
                layers[3]["srclayers"] = [layers[2]["name"]]
            made["train_one_batch"] = {"alg": "CountedExchange"}
            made["checkpoint_freq"] = 0
            job = JobConf.model_validate(made)
            counts = measure(job, folder)
        ms, cpu, messages, n_bytes, sockets = counts.T
        n_params = 25450 if given.net == "tiny" else 11972510
        least = 2 * (n - 1) / n * n_params * 4
        print(
            f"{n:9} {1e3 * ms.mean():24.2f} {1e3 * cpu.mean():11.2f} {messages.mean():10.1f} ({messages.max():.1f}) "
            f"{n_bytes.mean() / 1e6:6.2f} {n_bytes.mean() / least:18.3f} ({n_bytes.max() / least:.3f}) "
            f"{sockets.mean():10.1f} ({sockets.max():.0f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
