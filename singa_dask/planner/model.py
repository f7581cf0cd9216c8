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
    """A machine: memory in bytes, speed of its cores relative to those on which costs were measured."""

    name: str
    n_cores: int
    speed: float = 1.0
    memory: int = 0


@dataclass(frozen=True)
class Link:
    """Connection of two processes.

    Attributes
    ----------
    latency_s : float
        From the write of a small message to its read, if both threads are idle.
    bytes_per_s : float
        Of one direction of a host's network interface; within a host, of one connection.
    sent_s, received_s : float
        CPU time of the thread that writes or reads a message, apart from its bytes.
    sent_byte_s, received_byte_s : float
        CPU time of these threads for each byte.
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
        Index of the host of each process, in the order in which a job takes them.
    within, between : Link
        Between processes of one host, and of two.
    read_bytes_per_s : float
        Rate at which a host reads records; 0 is no limit.
    threads : tuple of int
        Threads of the Dask worker of each process, the most first; empty is no limit.
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
    """Costs of the work of a job, in seconds on a core of a host with speed 1."""

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
        """Return the time of ``"forward"`` or ``"backward"`` of a layer of a built net, for its shapes there.

        ``n_threads`` compute it while ``n_busy`` cores of the host are busy, including these.
        """

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        """Return the time in which a server updates slices of these sizes in one call."""

    def copied_byte_s(self, n_busy: int) -> float:
        """Return the time to copy or add up a byte of arrays."""

    def read_s(self, rows: int, n_busy: int) -> float:
        """Return the time in which a thread reads and decodes the records of a batch."""

    def crowding(self, n_groups: int) -> float:
        """Return the ratio of a step to its simulation if processes use all cores.

        With several worker groups, the groups do not wait for each other.
        """


@dataclass(frozen=True)
class Prediction:
    """Prediction for a job on a cluster, by simulation.

    Attributes
    ----------
    step_s : float
        Mean duration of the steps of worker groups, once they have settled.
    samples_per_s : float
        Of all worker groups.
    bytes_sent, messages_sent : tuple of int
        From each process to others, in a step.
    busy : mapping of str to float
        Share of the step for which the busiest of each kind was busy: ``"compute"``, ``"update"``, ``"messages"``,
        ``"network"``, ``"reading"``.
    waits : mapping of str to float
        Seconds of a step in which the slowest worker waited for ``"params"``, ``"records"``, ``"group"``.
    staleness : float
        Mean number of other updates between the values from which a gradient was computed and its own update; 0 if
        synchronous.
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
