"""Data model of the planner: hosts, links and clusters, the costs of work, and predictions."""

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
    """A host of a cluster.

    ``speed`` is the speed of a core, relative to the machine on which costs were measured. ``memory`` is in bytes.
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
        Seconds from writing a small message until it is read, if both message threads are idle.
    bytes_per_s : float
        Bytes per second in one direction, of a host's network interface. Within a host, of one connection.
    sent_s, received_s : float
        CPU seconds that the writing thread and the reading thread spend on each message.
    sent_byte_s, received_byte_s : float
        Additional CPU seconds that these two threads spend on each byte.
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
        The hosts.
    host_of : tuple of int
        Index of the host of each process, in the order in which a job uses the processes.
    within, between : Link
        The link between two processes of the same host, and the link between processes of different hosts.
    read_bytes_per_s : float
        Bytes of records that a host can read per second; 0 means no limit.
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
        """Return whether each process of a layout fits on a Dask worker, with a thread for each unit."""
        sizes = sorted(map(len, layout.processes), reverse=True)
        return not self.threads or all(map(operator.ge, self.threads, sizes))

    def n_workers(self, layout: Layout) -> Counter[int]:
        """Return the number of workers that a job has on each host, by the index of the host."""
        of_process = zip(self.host_of, layout.processes, strict=False)
        return Counter(host for host, units in of_process for unit in units if unit.kind == "worker")


class Costs(Protocol):
    """Costs of the work of a job, in seconds on one core of a host with speed 1."""

    step_s: float
    """Time of a worker for each step, outside of layers and messages: for the loader, metrics and the loop itself."""
    handled_s: float
    """Time of a stub or server for each message, without the time for the arrays of the message."""
    woken_s: float
    """Time from the notification of a waiting thread until the thread continues."""
    record_bytes: float
    """Number of bytes that are read for each record."""
    pass_s: float
    """Additional time of a pass of a layer for each other running thread of the process, as threads share Python's
    lock."""

    def layer_s(self, layer: Layer, verb: str, n_threads: int, n_busy: int) -> float:
        """Return the time of a pass of a layer.

        Parameters
        ----------
        layer : Layer
            A layer of a built net. Its shapes determine the time.
        verb : {"forward", "backward"}
            The pass.
        n_threads : int
            Number of threads that compute the layer.
        n_busy : int
            Number of busy cores of the host, including the cores of these threads.
        """

    def update_s(self, sizes: Sequence[int], n_busy: int) -> float:
        """Return the time of one call that updates slices. ``sizes`` are their numbers of values."""

    def copied_byte_s(self, n_busy: int) -> float:
        """Return the time to copy or add one byte of arrays."""

    def read_s(self, rows: int, n_busy: int) -> float:
        """Return the time in which a thread reads and decodes ``rows`` records."""

    def crowding(self, n_groups: int) -> float:
        """Return the ratio of measured to simulated time of a step, for processes that use all cores.

        The ratio with several worker groups differs from the ratio with one group, because groups do not wait for each
        other.
        """


@dataclass(frozen=True)
class Prediction:
    """Prediction for a job on a cluster, by simulation.

    Attributes
    ----------
    step_s : float
        Mean duration of a step of a worker group in seconds, without the first steps.
    samples_per_s : float
        Records per second, summed over all worker groups.
    bytes_sent, messages_sent : tuple of int
        Numbers of bytes and of messages that each process sends to other processes in a step.
    busy : mapping of str to float
        For each kind of resource, the share of a step in which its busiest resource is busy. Kinds are ``"compute"``,
        ``"update"``, ``"messages"``, ``"network"`` and ``"reading"``.
    waits : mapping of str to float
        Seconds of a step in which the slowest worker waits for ``"params"``, ``"records"`` or its ``"group"``.
    staleness : float
        Mean staleness of gradients: the number of updates of a param between the read from which a gradient is computed
        and the update with this gradient. 0 for synchronous training.
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
