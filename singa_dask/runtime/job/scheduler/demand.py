"""Count the Dask workers that jobs need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from singa_dask.conf import ClusterConf
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.planning.layout import pack, plan_processes
from singa_dask.runtime.planning.worker_choice import WorkerFacts, limits_of


def sizes_of(cluster: ClusterConf) -> list[int]:
    """Return the number of units of each process of a job that has as many Dask workers as it may use."""
    layout = plan_processes(cluster)
    return [len(units) for units in pack(layout, limits_of(cluster, layout)[1]).processes]


def missing_of(record: JobRecord) -> list[int]:
    """Return the number of units of each process of a running job that needs a further Dask worker."""
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
    """Return the number of Dask workers that all jobs together use or wait for.

    Parameters
    ----------
    workers : mapping of str to WorkerFacts
        The usable Dask workers.
    in_use : collection of str
        Dask workers that jobs use.
    wanted : iterable of (ClusterConf, collection of str, sequence of int)
        For each job that needs more Dask workers: its ``cluster`` block; the Dask workers that it has; and the number
        of units of each process without a Dask worker.
    nthreads : int
        Number of threads of a new Dask worker. Processes that would not fit on a new Dask worker do not count. Pass 0
        if the number is unknown; then only the first job counts.
    """
    free = {address: known.free for address, known in workers.items()}
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
