"""The units in each process of a job, and how a process joins a job that runs.

After SINGA's ``Cluster`` (src/utils/cluster.cc). Unlike in SINGA, the last process may have fewer units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf


@dataclass(frozen=True)
class Layout:
    """The units of each process of a job, workers before servers."""

    processes: tuple[tuple[Address, ...], ...]
    cluster: ClusterConf

    @cached_property
    def process_of(self) -> Mapping[Address, int]:
        """Process of each unit."""
        return {unit: process for process, units in enumerate(self.processes) for unit in units}

    @cached_property
    def units(self) -> tuple[Address, ...]:
        """All units, in the order of processes."""
        return tuple(chain.from_iterable(self.processes))

    @property
    def n_threads(self) -> int:
        """Number of threads that the largest process needs, one for each unit."""
        return max(len(units) for units in self.processes)

    @cached_property
    def groups_of(self) -> list[set[int]]:
        """Worker groups of each process: groups that have a worker in the process or use a server in it."""
        n_groups = self.cluster.nworker_groups
        of_servers = {unit.group for unit in self.units if unit.kind == "server"}
        users = {g: {n for n in range(n_groups) if self.server_group_of(n) == g} for g in of_servers}
        return [
            set().union(*({unit.group} if unit.kind == "worker" else users[unit.group] for unit in units))
            for units in self.processes
        ]

    def server_group_of(self, worker_group: int) -> int:
        """Return the server group that a worker group uses."""
        return worker_group // (self.cluster.nworker_groups // self.cluster.nserver_groups)

    def describe(self) -> dict[str, Any]:
        """Return the topology for the summary of a run."""
        conf = self.cluster
        return {
            "nworker_groups": conf.nworker_groups,
            "nworkers_per_group": conf.nworkers_per_group,
            "nserver_groups": conf.nserver_groups,
            "nservers_per_group": conf.nservers_per_group,
            "processes": [[str(unit) for unit in units] for units in self.processes],
        }


@dataclass(frozen=True)
class Rejoin:
    """Describes how a process joins a job whose other processes continue.

    Attributes
    ----------
    running : frozenset of Address
        Units in the other processes.
    left : frozenset of Address
        Workers that have finished.
    steps : mapping of int to int
        First step of each worker group that restarts, by group.
    """

    running: frozenset[Address]
    left: frozenset[Address]
    steps: Mapping[int, int]


def plan_processes(cluster: ClusterConf) -> Layout:
    """Assign the workers and servers of a job to processes as its ``cluster`` block says."""
    workers = [Address.worker(g, i) for g in range(cluster.nworker_groups) for i in range(cluster.nworkers_per_group)]
    servers = [Address.server(g, i) for g in range(cluster.nserver_groups) for i in range(cluster.nservers_per_group)]
    for_workers = _chunks(workers, cluster.nworkers_per_procs)
    for_servers = _chunks(servers, cluster.nservers_per_procs)
    if cluster.server_worker_separate:
        return Layout((*for_workers, *for_servers), cluster)
    n = max(len(for_workers), len(for_servers))
    padded = [chunks + [()] * (n - len(chunks)) for chunks in (for_workers, for_servers)]
    return Layout(tuple(a + b for a, b in zip(*padded, strict=True)), cluster)


def _chunks(units: Sequence[Address], size: int) -> list[tuple[Address, ...]]:
    return [tuple(units[start : start + size]) for start in range(0, len(units), size)]


def pack(layout: Layout, n: int) -> Layout:
    """Return a layout with the same units in at most ``n`` processes.

    Consecutive processes are joined, so that all have about the same number of units.
    """
    if n < 1:
        raise ValueError(f"pack: expected at least one process, got {n}.")
    n_before = len(layout.processes)
    if n >= n_before:
        return layout
    ends = list(accumulate(len(units) for units in layout.processes))
    cuts = [0]
    for k in range(1, n):
        # each joined process gets at least one of the processes
        possible = range(cuts[-1] + 1, n_before - n + k + 1)
        cuts.append(min(possible, key=lambda cut: abs(n * ends[cut - 1] - k * ends[-1])))
    parts = [layout.processes[start:stop] for start, stop in pairwise([*cuts, n_before])]
    joined = [sorted(chain.from_iterable(part), key=lambda unit: unit.kind == "server") for part in parts]
    return Layout(tuple(map(tuple, joined)), layout.cluster)
