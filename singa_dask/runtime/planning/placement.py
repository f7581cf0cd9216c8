"""Assign units to processes, and processes to Dask workers.

After SINGA's ``Cluster`` (src/utils/cluster.cc), with its rounding fixed: the last process may have fewer units than
the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any

from singa_dask.comm import Address
from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError

Gain = Callable[[int, Mapping[int, str]], Mapping[str, float]]


@dataclass(frozen=True)
class Layout:
    """The units of a job, by process.

    Attributes
    ----------
    processes : tuple of tuple of Address
        Units of each process, workers before servers.
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
        """Number of threads that the largest process needs, one for each unit."""
        return max(len(units) for units in self.processes)

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


def plan_processes(cluster: ClusterConf) -> Layout:
    """Assign the workers and servers of a job to processes, according to its ``cluster`` block."""
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
    """Put the units of a layout on fewer processes.

    Consecutive processes are joined, whole, so that all have about the same number of units.

    Parameters
    ----------
    layout : Layout
    n : int
        Number of processes, at least 1. A layout with no more than ``n`` processes stays as it is.
    """
    if n < 1:
        raise ValueError(f"pack: expected at least one process, got {n}.")
    n_before = len(layout.processes)
    if n >= n_before:
        return layout
    ends = list(accumulate(len(units) for units in layout.processes))
    cuts = [0]
    for k in range(1, n):
        # at least one process for each part, before the cut and after it
        possible = range(cuts[-1] + 1, n_before - n + k + 1)
        cuts.append(min(possible, key=lambda cut: abs(n * ends[cut - 1] - k * ends[-1])))
    parts = [layout.processes[start:stop] for start, stop in pairwise([*cuts, n_before])]
    joined = [sorted(chain.from_iterable(part), key=lambda unit: unit.kind == "server") for part in parts]
    return Layout(tuple(map(tuple, joined)), layout.cluster)


def place(
    layout: Layout, workers: Mapping[str, Mapping[str, Any]], busy: Mapping[str, int], gain: Gain | None = None
) -> list[str]:
    """Choose a Dask worker for each process.

    Parameters
    ----------
    layout : Layout
    workers : mapping
        Address of each Dask worker -> its facts from the scheduler (``nthreads``, ``host``, ``name``).
    busy : mapping
        Address -> threads that other tasks occupy.
    gain : callable, optional
        (process, Dask workers chosen so far) -> gain of placing the process on each Dask worker; 0 for those not
        named. It decides among the workers with enough threads.

    Returns
    -------
    list of str
        Address of the Dask worker of each process.

    Raises
    ------
    ClusterError
        The cluster is too small; the message has the numbers.
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
            f"{len(workers)} can be used (free threads: {there or 'none'}). "
            "Start more workers (dask-worker ADDRESS --nthreads N), or change the job's cluster block."
        )
    if gain is not None:
        chosen = _prefer(layout, needs, order, free, gain)
    return [chosen[process] for process in range(len(layout.processes))]


def _prefer(
    layout: Layout, needs: Sequence[int], order: Sequence[str], free: Mapping[str, int], gain: Gain
) -> dict[int, str]:
    """Assign each process a Dask worker with enough threads, the greatest gain first.

    Larger processes come first: a worker that fits one of them fits every later one, so a job that fits at all fits
    with any preferences.
    """
    chosen: dict[int, str] = {}
    left, waiting = list(order), list(needs)
    while waiting:
        size = len(layout.processes[waiting[0]])
        alike = [process for process in waiting if len(layout.processes[process]) == size]
        fitting = [address for address in left if free[address] >= size]
        worth = {process: gain(process, chosen) for process in alike}
        pairs = [(process, address) for process in alike for address in fitting]
        # max returns the first of equal pairs, so without any gain the result is that without preferences
        process, address = max(pairs, key=lambda pair: worth[pair[0]].get(pair[1], 0.0))
        chosen[process] = address
        waiting.remove(process)
        left.remove(address)
    return chosen
