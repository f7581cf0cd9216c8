"""SeenWorkers: the Dask workers that a job may use, and what occupies their threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from distributed import Status
from distributed.scheduler import WorkerState

from singa_dask.conf.cluster import WorkersConf
from singa_dask.runtime.job.names import job_of
from singa_dask.runtime.job.scheduler.heartbeats import Heartbeats
from singa_dask.runtime.job.scheduler.record import JobRecord
from singa_dask.runtime.planning.worker_choice import WorkerFacts
from singa_dask.shown import plural

NOT_RUNNING = {Status.paused: "it is paused, e.g. as its memory is full", Status.closing_gracefully: "it closes"}


class SeenWorkers(Mapping[str, WorkerFacts]):
    """Facts about each Dask worker that a job may use, by address.

    Threads that run the job's own tasks count as free.

    Facts are computed at each lookup, because most events need the facts of only a few Dask workers.
    """

    def __init__(
        self, workers: Mapping[str, WorkerState], heartbeats: Heartbeats, job_id: str, wanted: WorkersConf
    ) -> None:
        self._workers, self._heartbeats, self._job_id, self._wanted = workers, heartbeats, job_id, wanted

    def __getitem__(self, address: str) -> WorkerFacts:
        known = self._workers[address]
        if not self._fits(known):
            raise KeyError(address)
        return self._facts_of(known)

    def room(
        self, workers: Iterable[str], records: Mapping[str, JobRecord], beside_tasks: bool = True
    ) -> dict[str, WorkerFacts]:
        """Return facts about the ``workers`` that are in the cluster, with notes for users.

        Threads count as busy from the moment when a job claims them for its units. Without ``beside_tasks``, threads
        that run other Dask tasks count as free.
        """
        claims: dict[str, dict[str, int]] = {}
        for job_id, record in records.items():
            for address, n in record.state.threads.items():
                claims.setdefault(address, {})[job_id] = n
        room = {}
        for known in filter(None, map(self._workers.get, workers)):
            each, claimed = self._noted(known), claims.get(known.address, {})
            busy = max(each.busy if beside_tasks else 0, sum(claimed.values()))
            note = each.note or _describe_taken(known, claimed, beside_tasks)
            room[known.address] = each._replace(busy=busy, note=note)
        return room

    def _noted(self, known: WorkerState) -> WorkerFacts:
        """Return the facts of a Dask worker, with a note if the job cannot use this Dask worker."""
        facts = self._facts_of(known)
        if not self._fits(known):
            return facts._replace(usable=False, note="it does not match cluster.workers")
        if known.status != Status.running:
            return facts._replace(note=NOT_RUNNING.get(known.status, f"its status is {known.status.name}"))
        return facts if facts.usable else facts._replace(note="it is silent")

    def _facts_of(self, known: WorkerState) -> WorkerFacts:
        address = known.address
        held = known.processing - known.long_running  # long-running tasks have seceded, so they hold no thread
        own = sum(job_of(task.key) == self._job_id for task in held) if self._job_id else 0
        return WorkerFacts(
            nthreads=known.nthreads,
            busy=len(held) - own,
            host=known.host,
            name=str(known.name),
            has_nanny=bool(known.nanny),
            usable=known.status == Status.running and not self._heartbeats.is_silent(address),
            resources=known.resources,
        )

    def _fits(self, known: WorkerState) -> bool:
        return self._wanted.is_any or self._wanted.fits(str(known.name), known.resources)

    def __contains__(self, address: object) -> bool:
        known = self._workers.get(str(address))
        return known is not None and self._fits(known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._workers) if self._wanted.is_any else filter(self.__contains__, self._workers)

    def __len__(self) -> int:
        return len(self._workers) if self._wanted.is_any else sum(1 for _ in self)


def _describe_taken(known: WorkerState, claimed: Mapping[str, int], beside_tasks: bool) -> str:
    """Describe what occupies the threads of a Dask worker: units of jobs, or other tasks."""
    n_tasks = sum(not job_of(task.key) for task in known.processing - known.long_running) if beside_tasks else 0
    jobs = [f"{n} by job {job_id}" for job_id, n in claimed.items()]
    return ", ".join([*jobs, *([plural(n_tasks, "other task")] if n_tasks else [])])
