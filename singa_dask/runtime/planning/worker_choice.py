"""Choose Dask workers for the processes of a job by their free threads."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from singa_dask.conf import ClusterConf
from singa_dask.errors import ClusterError, NotNowError
from singa_dask.runtime.planning.layout import Layout, pack, plan_processes
from singa_dask.shown import plural
from singa_dask.wording import listed

SHOWN = 8
"""Maximum number of Dask workers that each list in an error names."""
TO_WAIT = "To wait for them, pass --queue to run, or queue=True to sd.train."

Gain = Callable[[Sequence[int], Sequence[str], Mapping[int, str]], np.ndarray]


class WorkerFacts(NamedTuple):
    """A Dask worker as the scheduler knows it.

    Attributes
    ----------
    busy : int
        Number of threads that other tasks occupy or wait for; may exceed ``nthreads``.
    has_nanny : bool
        Whether the Dask worker has a nanny, which restarts it if its process ends.
    usable : bool
        Whether the Dask worker accepts tasks and has sent a heartbeat recently.
    resources : mapping of str to float
        The resources with which the Dask worker was started.
    note : str
        Text for users: what occupies the threads, or why the Dask worker is not usable.
    """

    nthreads: int
    busy: int
    host: str
    name: str
    has_nanny: bool = False
    usable: bool = True
    resources: Mapping[str, float] = MappingProxyType({})
    note: str = ""

    @property
    def free(self) -> int:
        """Number of free threads."""
        return max(0, self.nthreads - self.busy)


def place(
    layout: Layout, workers: Mapping[str, WorkerFacts], gain: Gain | None = None, kept: Collection[str] = ()
) -> list[str]:
    """Choose a Dask worker for each process; return their addresses.

    Parameters
    ----------
    workers : mapping of str to WorkerFacts
        The Dask workers by address. Unusable Dask workers are only named in the error.
    gain : callable, optional
        Decides among the Dask workers with enough threads. Called with a list of processes, a list of Dask workers, and
        the Dask workers chosen so far, by process. Returns the gain of placing each process on each Dask worker, an
        array of shape (processes, workers).
    kept : collection of str
        Dask workers to prefer. Used only without ``gain``.

    Raises
    ------
    NotNowError
        The cluster is too small. The message says how many threads are free on each Dask worker, and what occupies the
        other threads.
    """
    unused, workers = _without_unusable(workers)
    free = {address: known.free for address, known in workers.items()}
    order = sorted(free, key=lambda address: (-free[address], workers[address].name, address))
    needs = sorted(range(len(layout.processes)), key=lambda process: (-len(layout.processes[process]), process))
    chosen = dict(zip(needs, order, strict=False))
    short = [process for process in needs if free.get(chosen.get(process, ""), 0) < len(layout.processes[process])]
    if short:
        numbers = [len(units) for units in layout.processes]
        wanted = f"{plural(numbers[0], 'free thread')}{' each' * (len(numbers) > 1)}"
        if len({*numbers}) > 1:
            wanted = f"{', '.join(map(str, numbers))} free threads"
        there = listed([f"{address}: {free[address]} of {workers[address].nthreads}" for address in order], SHOWN)
        taken = [f"{address} ({workers[address].note})" for address in order if workers[address].note]
        matching = "" if layout.cluster.workers.is_any else " that match cluster.workers"
        whole = sorted((known.nthreads for known in workers.values()), reverse=True)
        sizes = [len(layout.processes[process]) for process in needs]
        fits_later = len(whole) >= len(sizes) and all(map(operator.ge, whole, sizes))
        needed = plural(len(layout.processes), "Dask worker")
        raise NotNowError(
            f"the job does not fit: it needs {needed} with {wanted}; "
            f"{len(workers)}{matching} {'is' if len(workers) == 1 else 'are'} ready (free threads: {there or 'none'}). "
            f"{_sentence('Threads are taken on', taken)}{_sentence('Not used', unused)}"
            f"{f'It fits once other jobs are done. {TO_WAIT} ' * fits_later}"
            f"Start more workers (dask-worker ADDRESS --nthreads {sizes[0]}), or change the job's cluster block."
        )
    if gain is not None:
        chosen = _prefer(layout, needs, order, free, gain)
    elif kept:
        # both queues are sorted by free threads, the most first
        preferred, others = (deque(each for each in order if (each in kept) is one) for one in (True, False))
        for process in needs:
            fits = preferred and free[preferred[0]] >= len(layout.processes[process])
            chosen[process] = (preferred if fits else others).popleft()
    return [chosen[process] for process in range(len(layout.processes))]


def _without_unusable(workers: Mapping[str, WorkerFacts]) -> tuple[list[str], dict[str, WorkerFacts]]:
    """Return descriptions of the unusable Dask workers, and the usable Dask workers by address."""
    unused = [f"{address} ({known.note})" for address, known in workers.items() if not known.usable and known.note]
    return unused, {address: known for address, known in workers.items() if known.usable}


def _sentence(what: str, named: Sequence[str]) -> str:
    return f"{what}: {listed(named, SHOWN)}. " if named else ""


def _prefer(
    layout: Layout, needs: Sequence[int], order: Sequence[str], free: Mapping[str, int], gain: Gain
) -> dict[int, str]:
    """Assign each process to a Dask worker with enough threads, the greatest gain first.

    Larger processes are assigned first. A Dask worker that has room for one of them has room for every later process.
    Therefore the gains cannot make a job fail that fits on the cluster.
    """
    chosen: dict[int, str] = {}
    left, waiting = list(order), list(needs)
    while waiting:
        size = len(layout.processes[waiting[0]])
        alike = [process for process in waiting if len(layout.processes[process]) == size]
        fitting = [address for address in left if free[address] >= size]
        # argmax takes the first of equal gains, so if all gains are equal, the order of Dask workers decides
        i, k = divmod(int(np.argmax(gain(alike, fitting, chosen))), len(fitting))
        process, address = alike[i], fitting[k]
        chosen[process] = address
        waiting.remove(process)
        left.remove(address)
    return chosen


def share(layout: Layout, workers: Mapping[str, WorkerFacts], others: Mapping[str, int]) -> list[str]:
    """Choose a Dask worker with enough free threads for each process.

    Several processes may share a Dask worker.

    Parameters
    ----------
    workers : mapping of str to WorkerFacts
        The usable Dask workers by address.
    others : mapping of str to int
        Number of units of the job that already run on a Dask worker.

    Raises
    ------
    NotNowError
        There are too few free threads.
    """
    room = {address: known.free - others.get(address, 0) for address, known in workers.items()}
    chosen = []
    for units in layout.processes:
        fitting = [address for address in room if room[address] >= len(units)]
        if not fitting:
            raise NotNowError(f"no Dask worker has {len(units)} free threads.")
        address = min(fitting, key=lambda other: (other in chosen, other in others, -room[other], other))
        room[address] -= len(units)
        chosen.append(address)
    return chosen


def limits_of(cluster: ClusterConf, layout: Layout) -> tuple[int, int]:
    """Return the smallest and the largest number of processes of a job, given the layout of its job file."""
    n, elastic = len(layout.processes), cluster.elastic
    return elastic.min_processes, min(elastic.max_processes or n, n)


def place_again(
    layout: Layout,
    workers: Mapping[str, WorkerFacts],
    before: Sequence[str],
    limits: tuple[int, int],
    packed: bool,
) -> tuple[Layout, tuple[str, ...]]:
    """Choose Dask workers for all units of a restarting job, if possible its previous Dask workers.

    Parameters
    ----------
    layout : Layout
        Layout of the job file.
    before : sequence of str
        Dask workers that have or had units of the job.
    limits : tuple of int
        Smallest and largest number of processes.
    packed : bool
        Whether to use fewer processes than the largest number if there are too few Dask workers.

    Raises
    ------
    NotNowError
        There are too few Dask workers.
    """
    low, high = limits
    if high < len(layout.processes):
        layout = pack(layout, high)
    stays = frozenset(before)
    try:
        return layout, tuple(place(layout, workers, kept=stays))
    except ClusterError:
        free = {address: known.free for address, known in workers.items() if known.usable}
        roomy = [address for address in free if free[address] > 0]
        roomy.sort(key=lambda address: (address not in stays, -free[address], address))
        n = min(len(roomy), len(layout.processes))
        if not packed or n < low:
            raise
        return pack(layout, n), tuple(roomy[:n])


def place_first(layout: Layout, workers: Mapping[str, WorkerFacts]) -> tuple[Layout, tuple[str, ...]]:
    """Choose Dask workers for a job that starts. An elastic job may get fewer processes.

    Raises
    ------
    NotNowError
        There are too few Dask workers.
    """
    limits, packed = limits_of(layout.cluster, layout), bool(layout.cluster.elastic.max_processes)
    return place_again(layout, workers, (), limits, packed)


def shortage(cluster: ClusterConf, threads: Sequence[int]) -> str:
    """Return why a job would not fit even if all Dask workers were free; empty if it would fit.

    Parameters
    ----------
    threads : sequence of int
        Number of threads of each Dask worker that matches ``cluster.workers``.
    """
    layout = plan_processes(cluster)
    low, high = limits_of(cluster, layout)
    sizes = [1] * low if cluster.elastic.max_processes else [len(units) for units in pack(layout, high).processes]
    sizes, there = sorted(sizes, reverse=True), sorted(threads, reverse=True)
    is_large = all(map(operator.ge, there, sizes))
    if is_large and len(there) >= len(sizes):
        return ""
    matching = "" if cluster.workers.is_any else " that match cluster.workers"
    found = f"{len(there) or 'none'}{matching}{'' if is_large else f' with {_threads(there)}'}"
    return f"needs {plural(len(sizes), 'Dask worker')} with {_threads(sizes)}; the cluster has {found}"


def _threads(numbers: Sequence[int]) -> str:
    one = len({*numbers}) == 1
    return plural(numbers[0], "thread") if one else f"{listed([*map(str, numbers)], SHOWN)} threads"
