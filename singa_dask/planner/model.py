"""Model of the planner: hosts and links, the costs of work, and predictions."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from singa_dask.layers import Layer
from singa_dask.runtime.planning.layout import Layout


@dataclass(frozen=True)
class Machine:
    """A machine, with its memory in bytes and the speed of its cores.

    The speed is relative to the machine on which costs were measured.
    """

    name: str
    n_cores: int
    speed: float = 1.0
    memory: int = 0


@dataclass(frozen=True)
class Link:
    """A connection between two processes.

    Attributes
    ----------
    latency_s : float
        Seconds from writing a small message until it is read, if both threads are idle.
    bytes_per_s : float
        Rate of one direction of a host's network interface; within a host, of one connection.
    sent_s, received_s : float
        CPU seconds of the thread that writes or reads a message, without the time for its bytes.
    sent_byte_s, received_byte_s : float
        CPU seconds of these threads for each byte.
    """

    latency_s: float
    bytes_per_s: float
    sent_s: float = 0.0
    received_s: float = 0.0
    sent_byte_s: float = 0.0
    received_byte_s: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Processes available to a job, each on a host.

    Attributes
    ----------
    hosts : tuple of Machine
    host_of : tuple of int
        Index of the host of each process, in the order in which a job uses the processes.
    within, between : Link
        The links between processes on the same host, and on two hosts.
    read_bytes_per_s : float
        Rate at which a host reads records; 0 means no limit.
    threads : tuple of int
        Number of threads of each process's Dask worker, in descending order; empty means no limit.
    """

    hosts: tuple[Machine, ...]
    host_of: tuple[int, ...]
    within: Link
    between: Link
    read_bytes_per_s: float = 0.0
    threads: tuple[int, ...] = ()

    def fits(self, layout: Layout) -> bool:
        """Return whether the Dask workers have a thread for each unit of their processes."""
        sizes = sorted(map(len, layout.processes), reverse=True)
        return not self.threads or all(map(operator.ge, self.threads, sizes))

    def n_workers(self, layout: Layout) -> Counter[int]:
        """Return the number of workers that a job has on each host, by the index of the host."""
        of_process = zip(self.host_of, layout.processes, strict=False)
        return Counter(host for host, units in of_process for unit in units if unit.kind == "worker")


class Costs(Protocol):
    """Costs of the work of a job, in seconds on one core of a host with speed 1."""

    step_s: float
    """For each step of a worker, outside of layers and messages: loader, metrics, the loop."""
    handled_s: float
    """For each message that a stub or a server handles, apart from its arrays."""
    woken_s: float
    """Until a waiting thread continues after another one has notified it."""
    record_bytes: float
    """Bytes read for each record."""
    pass_s: float
    """For each pass of a layer and each other running thread of its process: they share Python's lock."""

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        """Return the time of ``"forward"`` or ``"backward"`` of a layer, for its shapes in a built net.

        ``n_threads`` threads compute the layer, while ``n_busy`` cores of the host are busy, including their own.
        """

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        """Return the time in which a server updates slices with these sizes in one call."""

    def copied_byte_s(self, n_busy: int) -> float:
        """Return the time to copy or add one byte of arrays."""

    def read_s(self, rows: int, n_busy: int) -> float:
        """Return the time in which a thread reads and decodes the records of a batch."""

    def crowding(self, n_groups: int) -> float:
        """Return the time of a step divided by its simulated time, if processes use all cores.

        If there are several worker groups, they do not wait for each other.
        """


@dataclass(frozen=True)
class Prediction:
    """Prediction for a job on a cluster, by simulation.

    Attributes
    ----------
    step_s : float
        Mean duration of a step of a worker group in seconds, after the first steps.
    samples_per_s : float
        Records per second of all worker groups.
    bytes_sent, messages_sent : tuple of int
        Bytes and messages that each process sends to others in a step.
    busy : mapping of str to float
        Share of the step in which the busiest resource of each kind was busy. Kinds are ``"compute"``, ``"update"``,
        ``"messages"``, ``"network"`` and ``"reading"``.
    waits : mapping of str to float
        Seconds in a step in which the slowest worker waited for ``"params"``, ``"records"`` or ``"group"``.
    staleness : float
        Mean staleness of gradients: the number of updates between the values that a gradient was computed from and the
        gradient's own update. 0 for synchronous training.
    trace : tuple
        Events of one step in Chrome's trace format, if requested.
    """

    step_s: float
    samples_per_s: float
    bytes_sent: tuple[int, ...]
    messages_sent: tuple[int, ...]
    busy: Mapping[str, float] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    staleness: float = 0.0
    trace: tuple[Mapping[str, Any], ...] = ()
