"""Which unit lives in which process, and which Dask worker hosts which process.

After SINGA's ``Cluster`` (src/utils/cluster.cc), with its rounding mended: the last process may hold fewer
units than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from singa_dask.comm import Address
from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError

__all__ = ["Layout", "place", "plan_processes"]


@dataclass(frozen=True)
class Layout:
    """The units of a job, by process.

    Attributes
    ----------
    processes : tuple of tuple of Address
        Units of each process; workers before servers.
    cluster : ClusterConf
    """

    processes: tuple[tuple[Address, ...], ...]
    cluster: ClusterConf

    @property
    def process_of(self) -> dict[Address, int]:
        """Process of each unit."""
        return {unit: process for process, units in enumerate(self.processes) for unit in units}

    @property
    def units(self) -> list[Address]:
        """All units, in the order of processes."""
        return [unit for units in self.processes for unit in units]

    @property
    def n_threads(self) -> int:
        """Threads that the fullest process needs, one a unit."""
        return max(len(units) for units in self.processes)

    def server_group_of(self, worker_group: int) -> int:
        """Return the server group that a worker group talks to."""
        return worker_group // (self.cluster.nworker_groups // self.cluster.nserver_groups)

    def describe(self) -> dict[str, Any]:
        """Return the topology as the summary of a run shows it."""
        conf = self.cluster
        return {
            "nworker_groups": conf.nworker_groups,
            "nworkers_per_group": conf.nworkers_per_group,
            "nserver_groups": conf.nserver_groups,
            "nservers_per_group": conf.nservers_per_group,
            "processes": [[str(unit) for unit in units] for units in self.processes],
        }


def plan_processes(cluster: ClusterConf) -> Layout:
    """Deal the workers and servers of a job to processes, as its ``cluster`` block says."""
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


def place(layout: Layout, workers: Mapping[str, Mapping[str, Any]], busy: Mapping[str, int]) -> list[str]:
    """Choose a Dask worker for each process.

    Parameters
    ----------
    layout : Layout
    workers : mapping
        Address of each Dask worker -> what the scheduler knows of it (``nthreads``, ``host``, ``name``).
    busy : mapping
        Address -> threads that other tasks occupy.

    Returns
    -------
    list of str
        Address of the Dask worker of each process.

    Raises
    ------
    ClusterError
        The cluster is too small; says what is needed and what is there.
    """
    free = {address: facts["nthreads"] - busy.get(address, 0) for address, facts in workers.items()}
    order = sorted(free, key=lambda address: (-free[address], str(workers[address].get("name")), address))
    needs = sorted(range(len(layout.processes)), key=lambda process: (-len(layout.processes[process]), process))
    chosen = dict(zip(needs, order, strict=False))
    short = [process for process in needs if free.get(chosen.get(process, ""), 0) < len(layout.processes[process])]
    if short:
        wanted = ", ".join(str(len(units)) for units in layout.processes)
        there = ", ".join(f"{address}: {free[address]} of {workers[address]['nthreads']}" for address in order)
        raise ClusterError(
            f"the job does not fit: it needs {len(layout.processes)} Dask workers with {wanted} free threads; "
            f"the cluster has {len(workers)} (free threads: {there or 'none'}). "
            "Start more workers (dask-worker ADDRESS --nthreads N), or change the job's cluster block."
        )
    return [chosen[process] for process in range(len(layout.processes))]
