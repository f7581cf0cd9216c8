"""Links: what messages take between processes, measured by the transport of jobs, and clusters that are not there."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
from distributed import Client, get_worker

from singa_dask.comm.message import Address, Message
from singa_dask.comm.shared import segment_bytes
from singa_dask.comm.transport import Transport
from singa_dask.errors import ClusterError, CommError, ConfigError
from singa_dask.ops import get_ops
from singa_dask.planner.model import Cluster, Host, Link
from singa_dask.registry import suggest
from singa_dask.runtime.job.cluster import present_workers
from singa_dask.runtime.planning.placement import cpu_count, limit_process, machine_memory

LOOPBACK = "tcp://127.0.0.1"
SIZES = {0: 200, 1 << 16: 100, 1 << 20: 40, 1 << 22: 20}
"""Bytes of the messages that are sent, and how many of each in a row."""
N_TURNS = 200
TIMEOUT_S = 20.0
MAX_SLOTS = 64
"""Processes that a cluster which is not there can have, where its hosts are fewer."""
KERNEL = 384
"""Rows and columns of the matrices whose product shows how fast a core is."""

T = TypeVar("T")


class Exchange(NamedTuple):
    """What some messages of one size took: until the last was answered, and of CPU time at both ends."""

    seconds: float
    sender_s: float
    receiver_s: float


class End:
    """One end of a link: it answers messages, and measures what its own take.

    Parameters
    ----------
    host : str
        Scheme and host, see `Transport`.
    token : str
        The same at both ends.
    process : int
    **options
        Of `Transport`.
    """

    def __init__(self, host: str, token: str, process: int, **options: Any) -> None:
        self._unit = Address.stub(process)
        self._buffers: dict[int, np.ndarray] = {}
        self._results: SimpleQueue[Any] = SimpleQueue()
        self._to, self._peer, self._left = "", "", 0
        about: dict[str, Any] = {"job": "link", "life": 0, "process": process, "token": token}
        options = {"receive_buffer": self._buffer, "name": f"link-{process}", **options}
        self.transport = Transport(host, self._on_message, self._on_lost, **about, **options)

    def _buffer(self, message: Message) -> np.ndarray:
        n = message.info["n_bytes"]
        return self._buffers.setdefault(n, np.empty(n, np.uint8))

    def _on_lost(self, address: str, reason: str) -> None:
        self._results.put(CommError(f"{address}: {reason}"))

    def _on_message(self, message: Message) -> None:
        if message.kind == "hello":  # from an end that measures
            self._peer = message.info["address"]
            self._send(self._peer, "go")
        elif message.kind == "update" and message.info["last"]:
            self._send(self._peer, "r-update", cpu_s=time.thread_time())
        elif message.kind == "get":
            self._send(self._peer, "r-get")
        elif message.kind == "r-get" and self._left:
            self._left -= 1
            self._send(self._to, "get")
        elif message.kind in ("go", "r-get", "r-update"):
            self._results.put((time.perf_counter(), time.thread_time(), message.info.get("cpu_s", 0.0)))

    def _send(self, to: str, kind: str, array: np.ndarray | None = None, **info: Any) -> None:
        arrays = () if array is None else (array,)
        self.transport.send(to, Message(kind, self._unit, self._unit, info=info, arrays=arrays))

    def _result(self) -> tuple[float, float, float]:
        result = self._results.get(timeout=TIMEOUT_S)
        if isinstance(result, Exception):
            raise result
        times: tuple[float, float, float] = result
        return times

    def greet(self, address: str) -> None:
        """Connect to another end, and wait until it has answered; `CommError` if it cannot be reached."""
        self._to = address
        self._send(address, "hello", address=self.transport.address)
        self._result()

    def exchange(self, n_bytes: int, n: int) -> Exchange:
        """Send messages with arrays of so many bytes, one right after the other."""
        array = np.zeros(n_bytes, np.uint8) if n_bytes else None
        self._send(self._to, "update", n_bytes=n_bytes, last=True)
        _, sender, receiver = self._result()
        started = time.perf_counter()
        for i in range(n):
            self._send(self._to, "update", array, n_bytes=n_bytes, last=i == n - 1)
        ended, *after = self._result()
        return Exchange((ended - started) / n, (after[0] - sender) / n, (after[1] - receiver) / n)

    def turn_s(self) -> float:
        """Return the time of a small message from thread to thread, half of that until its answer is there."""
        self._left = N_TURNS - 1
        started = time.perf_counter()
        self._send(self._to, "get")
        return (self._result()[0] - started) / (2 * N_TURNS)

    def measure(self, address: str) -> Link:
        """Return the link to another end."""
        self.greet(address)
        self.turn_s()
        turn_s = min(self.turn_s() for _ in range(3))
        self.exchange(max(SIZES), SIZES[max(SIZES)])
        found = {size: self.exchange(size, n) for size, n in SIZES.items()}
        return link_of(turn_s, found)


def link_of(turn_s: float, exchanges: Mapping[int, Exchange]) -> Link:
    """Return a link from the time of small messages in turn, and exchanges by the size of their messages, small ones first.

    The CPU time of either end is a line over the bytes of a message.
    """
    sizes = np.array(list(exchanges), float)
    lines = []
    for end in ("sender_s", "receiver_s"):
        seconds = [getattr(each, end) for each in exchanges.values()]
        # small messages alone say what a message takes: where a line through large ones meets zero may be anywhere
        lines.append((max(seconds[0], 0.0), max(float(np.polyfit(sizes, seconds, 1)[0]), 0.0)))
    (sent_s, sent_byte_s), (received_s, received_byte_s) = lines
    bytes_per_s = max(exchanges) / exchanges[max(exchanges)].seconds
    return Link(max(turn_s - sent_s - received_s, 1e-6), bytes_per_s, sent_s, received_s, sent_byte_s, received_byte_s)


def answer() -> None:
    """Be the other end, in a process of its own, until stdin ends; the token and the shared bytes come on it first."""
    token, shared_bytes = sys.stdin.readline().split()
    end = End(LOOPBACK, token, 1, shared_bytes=int(shared_bytes))
    print(end.transport.address, flush=True)
    sys.stdin.read()
    end.transport.close()


def measure_here(shared: bool) -> Link:
    """Return the link between two processes of this machine, with or without shared memory for arrays."""
    token, shared_bytes = secrets.token_hex(8), segment_bytes(1, None) if shared else 0
    command = [sys.executable, "-c", "from singa_dask.planner.links import answer; answer()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{token} {shared_bytes}\n")
        process.stdin.flush()
        end = End(LOOPBACK, token, 0, shared_bytes=shared_bytes)
        try:
            return end.measure(process.stdout.readline().strip())
        finally:
            end.transport.close()
            process.stdin.close()


def kernel_s() -> float:
    """Return the time of a matrix product on one core."""
    ops, a = get_ops(), np.ones((KERNEL, KERNEL), np.float32)
    y, times = np.empty_like(a), []
    with limit_process(1):
        for _ in range(9):
            started = time.perf_counter()
            ops.linear(a, a, None, out=y)
            times.append(time.perf_counter() - started)
    return min(times)


# -- a cluster that is there -----------------------------------------------------------------------------------

_ENDS: dict[tuple[str, str], End] = {}
"""Ends of the Dask workers of this process, by address of the worker and token."""


def _open_end(token: str) -> str:
    worker = get_worker()
    scheme, _, endpoint = worker.address.partition("://")
    args = {
        "listen_args": worker.security.get_listen_args("worker"),
        "connect_args": worker.security.get_connection_args("worker"),
    }
    end = _ENDS[worker.address, token] = End(f"{scheme}://{endpoint.rpartition(':')[0]}", token, 0, **args)
    return end.transport.address


def _measure_to(token: str, address: str) -> Link:
    return _ENDS[get_worker().address, token].measure(address)


def _send_to(token: str, address: str) -> float:
    end = _ENDS[get_worker().address, token]
    end.greet(address)
    return max(SIZES) / end.exchange(max(SIZES), 2 * SIZES[max(SIZES)]).seconds


def _close_end(token: str) -> None:
    if end := _ENDS.pop((get_worker().address, token), None):
        end.transport.close()


def _facts() -> tuple[int, int, float]:
    return cpu_count(), machine_memory(), kernel_s()


def _on(client: Client, workers: Sequence[str], calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make a call on each of some Dask workers, all at once."""
    futures = [client.submit(call, workers=[at], pure=False) for at, call in zip(workers, calls, strict=True)]
    try:
        results: list[T] = client.gather(futures)
        return results
    except (CommError, Empty, ImportError) as error:
        raise ClusterError(f"the network of the cluster cannot be measured: {error or 'no answer'}.") from error


def measure_cluster(client: Client, within: Link) -> Cluster:
    """Return the hosts of a Dask cluster, as fast as they are beside this machine, and the links between them.

    One host sends to the next one, and then each to the next, all at once: if the network has less room than their
    interfaces together, it is that.

    Parameters
    ----------
    client : Client
    within : Link
        Between processes of one host.

    Raises
    ------
    ClusterError
        There are no workers, or they do not reach each other.
    """
    workers = present_workers(client)
    if not workers:
        raise ClusterError("the cluster has no workers. Start some: dask-worker ADDRESS.")
    # in the order in which a job takes them
    order = sorted(workers, key=lambda each: (-workers[each]["nthreads"], str(workers[each]["name"]), each))
    first: dict[str, str] = {}
    for address in order:
        first.setdefault(workers[address]["host"], address)
    at, names, here_s = list(first.values()), list(first), kernel_s()
    facts = _on(client, at, [_facts] * len(at))
    hosts = tuple(Host(name, n, here_s / s, memory) for name, (n, memory, s) in zip(names, facts, strict=True))
    host_of = tuple(names.index(workers[address]["host"]) for address in order)
    if len(at) == 1:
        return Cluster(hosts, host_of, within, within)
    token = secrets.token_hex(8)
    try:
        ends = _on(client, at, [partial(_open_end, token)] * len(at))
        (link,) = _on(client, at[:1], [partial(_measure_to, token, ends[1])])
        together = _on(client, at, [partial(_send_to, token, to) for to in (*ends[1:], ends[0])])
    finally:
        _on(client, at, [partial(_close_end, token)] * len(at))
    between = replace(link, bytes_per_s=min(link.bytes_per_s, float(np.median(together))))
    return Cluster(hosts, host_of, within, between)


# -- a cluster that is not there -------------------------------------------------------------------------------

NUMBER = re.compile(r"([\d.]+)\s*([A-Za-z]*)(?:/s)?")
UNITS = {
    "link": {"Gbit": 1e9 / 8, "Mbit": 1e6 / 8},
    "latency": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "memory": {"GiB": 2.0**30, "GB": 1e9, "MiB": 2.0**20, "MB": 1e6},
    "read": {"Gbit": 1e9 / 8, "Mbit": 1e6 / 8, "GB": 1e9, "MB": 1e6},
    "life": {"h": 3600.0, "d": 86400.0},
}
COUNTS = ("hosts", "cores")
DEFAULTS = {"hosts": 1.0, "cores": 0, "link": 0, "latency": 50e-6, "memory": 0, "speed": 1.0, "read": 0, "life": 0}
EXAMPLES = {"link": "25Gbit", "latency": "30us", "memory": "64GiB", "speed": "1.2", "hosts": "64", "cores": "32"}
EXAMPLES |= {"read": "200MB", "life": "10000h"}


def read_what_if(text: str) -> dict[str, float]:
    """Read ``hosts=64,link=25Gbit,latency=30us,cores=32``.

    Returns
    -------
    dict of str to float
        Bytes per second of ``link``, seconds of ``latency``, bytes of ``memory``; ``hosts``, ``cores`` of each, and
        their ``speed`` beside those of this machine, bytes per second of records that each can ``read``, seconds of the
        mean ``life`` of a process. What is not given has its default; 0 stands for that of this machine, or no limit.

    Raises
    ------
    ConfigError
        A key or a value cannot be read, or several hosts have no link.
    """
    values = dict(DEFAULTS)
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, said = part.partition("=")
        if key not in DEFAULTS:
            raise ConfigError(f"--what-if {part}: unknown key {key!r}. {suggest(key, list(DEFAULTS))}")
        units = UNITS.get(key, {"": 1.0})
        match = NUMBER.fullmatch(said)
        number = float(match[1]) if match and match[2] in units and match[1].count(".") < 2 and match[1] != "." else 0.0
        value = number * units[match[2]] if match and number else 0.0
        if not value or (key in COUNTS and not value.is_integer()):
            unit = f" in {' or '.join(units)}" if key in UNITS else " from 1 on" if key in COUNTS else ""
            raise ConfigError(f"--what-if {part}: expected a number{unit}, e.g. {key}={EXAMPLES[key]}.")
        values[key] = value
    if values["hosts"] > 1 and not values["link"]:
        raise ConfigError("--what-if: several hosts need a link. Say how fast it is, e.g. link=25Gbit.")
    return values


def imagined_cluster(values: Mapping[str, float], within: Link, over_tcp: Link) -> Cluster:
    """Return a cluster of equal hosts, with as many processes as cores; a job takes one of each host in turn.

    Parameters
    ----------
    values : mapping
        See `read_what_if`.
    within : Link
        Between processes of one host.
    over_tcp : Link
        The same without shared memory: what the threads that write and read messages take between hosts, too.
    """
    n, cores = int(values["hosts"]), int(values["cores"]) or cpu_count()
    memory = int(values["memory"]) or machine_memory()
    hosts = tuple(Host(f"host-{i}", cores, values["speed"], memory) for i in range(n))
    between = replace(over_tcp, latency_s=values["latency"], bytes_per_s=values["link"] or over_tcp.bytes_per_s)
    host_of = tuple(range(n)) * min(cores, max(MAX_SLOTS // n, 2))
    return Cluster(hosts, host_of, within, between, values["read"])
