"""Measure connections between processes, on this machine and on Dask clusters, as jobs use them."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, TypeVar

import numpy as np
from distributed import Client, get_worker

from singa_dask.comm.message import Address, Message
from singa_dask.comm.shared import segment_bytes
from singa_dask.comm.transport import Transport
from singa_dask.errors import ClusterError, CommError
from singa_dask.ops import get_ops
from singa_dask.planner.model import Cluster, Link, Machine
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.planning.machine import cpu_count, machine_memory
from singa_dask.runtime.planning.thread_limits import limit_process, limit_thread

LOOPBACK = "tcp://127.0.0.1"
UNIT = Address.stub(0)
SIZES = (0, 1 << 16, 1 << 20, 1 << 22)
"""Sizes of the messages that are sent, in bytes."""
N_FIRST, N_TURNS, PAUSE_S, TIMEOUT_S = 3, 45, 0.005, 20.0
"""Number of warm-up messages; number of measured messages; seconds of other work before each message; seconds to wait
for an answer."""
OTHER = 1 << 20
"""Number of values that are changed before each message, as other work."""
KERNEL, N_KERNELS = 384, 9
"""To measure the speed of a core, a product of `KERNEL` x `KERNEL` matrices is computed `N_KERNELS` times."""

T = TypeVar("T")


class LinkEnd:
    """One end of a link: sends messages and measures their times, or answers messages.

    Both ends of a link must have the same ``token``. ``options`` are options of `Transport`.
    """

    def __init__(self, host: str, token: str, **options: Any) -> None:
        self._buffers: dict[int, np.ndarray] = {}
        self._other = np.zeros(OTHER)
        self._answers: SimpleQueue[Any] = SimpleQueue()
        about: dict[str, Any] = {"job": "link", "incarnation": 0, "process": 0, "token": token}
        about |= {"receive_buffer": self._buffer, "name": f"link-{token}"}
        self.transport = Transport(host, self._on_message, self._on_lost, **about, **options)

    def _buffer(self, message: Message) -> np.ndarray:
        n = message.info["n_bytes"]
        return self._buffers.setdefault(n, np.empty(n, np.uint8))

    def _on_lost(self, address: str, reason: str) -> None:
        self._answers.put(CommError(f"{address}: {reason}"))

    def _on_message(self, message: Message) -> None:
        if message.kind == "r-update":
            self._answers.put((time.perf_counter(), time.thread_time(), message.info["cpu_s"]))
        elif to := message.info["answer_to"]:
            self.transport.send(to, Message("r-update", UNIT, UNIT, info={"cpu_s": time.thread_time()}))

    def send(self, address: str, array: np.ndarray | None = None) -> np.ndarray:
        """Send a message and wait for the answer; before that, do other work for `PAUSE_S` seconds.

        During the other work, the message threads fall asleep, as in a job.

        Returns
        -------
        (3,) float64
            The duration in seconds, and the CPU time so far of the message threads at both ends.

        Raises
        ------
        CommError
            The other end cannot be reached.
        """
        arrays = () if array is None else (array,)
        info = {"n_bytes": 0 if array is None else array.nbytes, "answer_to": self.transport.address}
        end = time.perf_counter() + PAUSE_S
        while time.perf_counter() < end:
            self._other += 1  # evict the data of messages from the caches
        if array is not None:
            array += 1  # load the array into the caches of this core, as reading a gradient does
        started = time.perf_counter()
        self.transport.send(address, Message("update", UNIT, UNIT, info=info, arrays=arrays))
        answer = self._answers.get(timeout=TIMEOUT_S)
        if isinstance(answer, Exception):
            raise answer
        return np.array(answer) - (started, 0.0, 0.0)

    def exchange(self, address: str, n_bytes: int) -> np.ndarray:
        """Return the median duration of `send` for messages of ``n_bytes``, and mean CPU time at both ends."""
        array = np.ones(n_bytes, np.uint8) if n_bytes else None
        for _ in range(N_FIRST):
            before = self.send(address, array)
        times = np.array([self.send(address, array) for _ in range(N_TURNS)])
        return np.array([np.median(times[:, 0]), *(times[-1, 1:] - before[1:]) / N_TURNS])

    def measure(self, address: str) -> Link:
        """Measure the link to the other end, at ``address``, by linear fits over the sizes of messages."""
        times = np.array([self.exchange(address, size) for size in SIZES])
        # messages without bytes give the fixed cost, because the intercept of a fit to large messages is unreliable
        byte_s, sent_byte_s, received_byte_s = np.maximum(np.polyfit(SIZES, times, 1)[0], 0.0).tolist()
        # in a turn, each end sends one message and receives one message
        turn_s, sent_s, received_s = (times[0] / (1, 2, 2)).tolist()
        latency_s = max(turn_s / 2 - sent_s - received_s - woken_s(), 1e-6)
        bytes_per_s = 1 / max(byte_s - received_byte_s, 1e-12)
        return Link(latency_s, bytes_per_s, sent_s, received_s, sent_byte_s, received_byte_s)


def woken_s() -> float:
    """Return the seconds from the notification of a sleeping thread until this thread continues."""
    times = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(N_TURNS):
            time.sleep(PAUSE_S)
            started = time.perf_counter()
            pool.submit(int).result()  # this wakes a thread, which then wakes this thread
            times.append((time.perf_counter() - started) / 2)
    return median(times)


def answer() -> None:
    """Answer messages until stdin ends, as the main function of a process.

    The first line of stdin has the token and the size of shared memory. The address is printed to stdout.
    """
    token, shared_bytes = sys.stdin.readline().split()
    end = LinkEnd(LOOPBACK, token, shared_bytes=int(shared_bytes))
    print(end.transport.address, flush=True)
    sys.stdin.read()
    end.transport.close()


def measure_here(shared: bool) -> Link:
    """Measure the link between two processes of this machine, with or without shared memory for arrays."""
    token, shared_bytes = secrets.token_hex(8), segment_bytes(1, None) if shared else 0
    command, pipe = [sys.executable, "-c", "from singa_dask.planner.links import answer; answer()"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{token} {shared_bytes}\n")
        process.stdin.flush()
        end = LinkEnd(LOOPBACK, token, shared_bytes=shared_bytes)
        try:
            return end.measure(process.stdout.readline().strip())
        finally:
            end.transport.close()
            process.stdin.close()


def kernel_s() -> float:
    """Return the time of a matrix product on one core of this machine, in seconds."""
    ops, x = get_ops(), np.ones((KERNEL, KERNEL), np.float32)
    y, times = np.empty_like(x), []
    with limit_process(1), limit_thread(1):
        for _ in range(N_KERNELS):
            started = time.perf_counter()
            ops.linear(x, x, None, out=y)
            times.append(time.perf_counter() - started)
    return min(times)


_ENDS: dict[tuple[str, str], LinkEnd] = {}
"""Open ends in this process, by (address of the Dask worker, token)."""


def _open_end(token: str) -> str:
    worker = get_worker()
    scheme, _, endpoint = worker.address.partition("://")
    listen_args, connect_args = worker.security.get_listen_args("worker"), worker.security.get_connection_args("worker")
    options = {"listen_args": listen_args, "connect_args": connect_args}
    end = _ENDS[worker.address, token] = LinkEnd(f"{scheme}://{endpoint.rpartition(':')[0]}", token, **options)
    return str(end.transport.address)


def _measure_to(token: str, address: str) -> Link:
    return _ENDS[get_worker().address, token].measure(address)


def _bytes_per_s_to(token: str, address: str) -> float:
    return max(SIZES) / float(_ENDS[get_worker().address, token].exchange(address, max(SIZES))[0])


def _close_end(token: str) -> None:
    if end := _ENDS.pop((get_worker().address, token), None):
        end.transport.close()


def _facts() -> tuple[int, int, float]:
    return cpu_count(), machine_memory(), kernel_s()


def _on(client: Client, workers: Sequence[str], calls: Sequence[Callable[[], T]]) -> list[T]:
    """Call ``calls[i]`` on ``workers[i]``, all at the same time; return the results."""
    futures = [client.submit(call, workers=[at], pure=False) for at, call in zip(workers, calls, strict=True)]
    try:
        results: list[T] = client.gather(futures)
    except (CommError, Empty, ImportError) as error:
        raise ClusterError(f"the network of the cluster cannot be measured: {error or 'no answer'}.") from error
    return results


def measure_cluster(client: Client, within: Link) -> Cluster:
    """Measure the hosts of a Dask cluster: their speed relative to this machine, and their link.

    First, one host sends to another host. Then all hosts send at the same time, because the network may carry fewer
    bytes per second than all network interfaces together.

    Parameters
    ----------
    within : Link
        The link between processes of one host.

    Raises
    ------
    ClusterError
        The cluster has no Dask workers, or they cannot reach each other.
    """
    workers = present_workers(client)
    if not workers:
        raise ClusterError("the cluster has no workers. Start some: dask-worker ADDRESS.")
    # the order in which a job takes Dask workers
    order = sorted(workers, key=lambda each: (-workers[each]["nthreads"], str(workers[each]["name"]), each))
    first: dict[str, str] = {}
    for address in order:
        first.setdefault(workers[address]["host"], address)
    names, at, here_s = list(first), list(first.values()), kernel_s()
    facts = _on(client, at, [_facts] * len(at))
    hosts = tuple(Machine(name, n, here_s / s, memory) for name, (n, memory, s) in zip(names, facts, strict=True))
    host_of = tuple(names.index(workers[each]["host"]) for each in order)
    cluster = Cluster(hosts, host_of, within, within, threads=tuple(workers[each]["nthreads"] for each in order))
    if len(at) == 1:
        return cluster
    token = secrets.token_hex(8)
    try:
        ends = _on(client, at, [partial(_open_end, token)] * len(at))
        (link,) = _on(client, at[:1], [partial(_measure_to, token, ends[1])])
        together = _on(client, at, [partial(_bytes_per_s_to, token, end) for end in (*ends[1:], ends[0])])
    finally:
        _on(client, at, [partial(_close_end, token)] * len(at))
    bytes_per_s = min(link.bytes_per_s, float(np.median(together)))
    return replace(cluster, between=replace(link, bytes_per_s=bytes_per_s))
