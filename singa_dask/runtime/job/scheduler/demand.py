"""How many Dask workers jobs have and wait for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.planning.layout import pack, plan_processes
from singa_dask.runtime.planning.worker_choice import WorkerFacts, limits_of


def sizes_of(cluster: ClusterConf) -> list[int]:
    """Return the number of units of each process of a job that has all the Dask workers that it may use."""
    layout = plan_processes(cluster)
    return [len(units) for units in pack(layout, limits_of(cluster, layout)[1]).processes]


def missing_of(record: JobRecord) -> list[int]:
    """Return the number of units of each process for which a job that runs has no Dask worker of its own."""
    state = record.state
    if state.is_stopping or state.phase in ("ending", "over"):
        return []
    return sizes_of(state.cluster)[len(set(state.workers)) :]


def count_demand(
    workers: Mapping[str, WorkerFacts],
    in_use: Collection[str],
    wanted: Iterable[tuple[ClusterConf, Collection[str], Sequence[int]]],
    nthreads: int,
) -> int:
    """Return how many Dask workers jobs have and wait for.

    Parameters
    ----------
    workers : mapping of str to WorkerFacts
        Those that can be used.
    in_use : collection of str
        Those that jobs have.
    wanted : iterable of (ClusterConf, collection of str, sequence of int)
        Of each job that waits for some: its ``cluster`` block, those that it has, and the number of units of each
        process for which it needs another one.
    nthreads : int
        Threads of a Dask worker that would come; 0 if that is not known: then only those for the first job are asked
        for. What would not fit on it is not asked for at all.
    """
    free = {address: known.nthreads - known.busy for address, known in workers.items()}
    used = set(in_use)
    for cluster, mine, sizes in wanted:
        taken = set(mine)
        for n in sizes:
            fitting = [
                address
                for address, threads in free.items()
                if threads >= n and address not in taken
                and (address not in workers or cluster.workers.fits(workers[address].name, workers[address].resources))
            ]  # fmt: skip
            if not fitting and nthreads and nthreads < n:
                continue
            address = min(fitting, key=lambda each: (each not in used, free[each]), default=f"new {len(free)}")
            free[address] = free.get(address, nthreads or n) - n
            taken.add(address)
            used.add(address)
        if not nthreads:
            break
    return len(used)
