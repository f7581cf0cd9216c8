"""A Dask cluster of real processes to which a test does harm, and what is left of a job on it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from distributed import Client, Scheduler

from singa_dask.runtime import Patience, connect
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.names import JOBS
from singa_dask.runtime.job.scheduler.heartbeats import Heartbeats
from singa_dask.runtime.job.scheduler.jobs import Jobs
from tests.runtime.processes import TIMEOUT_S, Cluster, kill_group, residue, wait_until

NANNY: tuple[str, ...] = ()
BARE = ("--no-nanny",)


class Machines(Cluster):
    """A scheduler and workers of two threads each.

    Attributes
    ----------
    client : distributed.Client
    """

    client: Client

    def __init__(self, directory: Path, *options: str, names: Sequence[str] = ("a", "b")) -> None:
        self._options = options
        self._n_added = 0
        super().__init__(directory, "--preload", "tests.faults.parts", *options, names=names)

    def grow(self, n: int, *options: str) -> None:
        """Start more workers; this does not wait for them."""
        for _ in range(n):
            self._n_added += 1
            self.add(f"more{self._n_added}", "--preload", "tests.faults.parts", *(options or self._options))

    def workers(self) -> dict[str, dict[str, Any]]:
        """Return what the scheduler knows about each worker, by address."""
        return present_workers(self.client)

    def pid(self, address: str) -> int:
        """Return the pid of a worker, which need not answer."""
        port = int(address.rpartition(":")[2])
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                for each in process.net_connections(kind="tcp"):
                    if each.status == psutil.CONN_LISTEN and each.laddr.port == port:
                        return process.pid
        raise AssertionError(f"{address}: no process of the cluster listens there")

    def send(self, address: str, number: signal.Signals) -> int:
        """Send a signal to a worker; return its pid."""
        pid = self.pid(address)
        os.kill(pid, number)
        return pid

    def settle(self, n: int) -> None:
        """Wait until a cluster has ``n`` workers that answer: kill what was stopped, and end or start others.

        A long silence makes the scheduler patient with the next one; the next test begins with one that has seen none.
        """
        self._kill_stopped()
        wait_until(lambda: self._has_just(n), f"{n} workers are there")
        self.client.run_on_scheduler(_forget_delays)

    def _has_just(self, n: int) -> bool:
        alive = [process for process in self.processes[1:] if process.poll() is None]
        for process in alive[n:]:
            kill_group(process)
        self.grow(max(n - len(alive), 0))
        addresses = self.workers()
        return len(alive) == len(addresses) == n and all(map(self._is_there, addresses))

    def _is_there(self, address: str) -> bool:
        with contextlib.suppress(AssertionError):
            return self.pid(address) > 0
        return False

    def kill_all(self) -> None:
        """Kill all workers, and their nannies."""
        for process in list(self._tree()):
            if process.pid != self.scheduler.pid:
                with contextlib.suppress(psutil.Error):
                    process.kill()

    def _tree(self) -> Iterator[psutil.Process]:
        for started in self.processes:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(started.pid)
                yield from (process, *process.children(recursive=True))

    def _kill_stopped(self) -> None:
        started = {process.pid: process for process in self.processes}
        for process in list(self._tree()):
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED:
                    process.kill()
                    if process.pid in started:
                        started[process.pid].wait(TIMEOUT_S)


def _forget_delays(dask_scheduler: Scheduler) -> None:
    if isinstance(jobs := dask_scheduler.plugins.get(JOBS), Jobs):
        jobs._heartbeats = Heartbeats(dask_scheduler)


@contextmanager
def machines(directory: Path, *options: str, n: int = 2) -> Iterator[Machines]:
    """Start a cluster of ``n`` workers."""
    made = Machines(directory, *options, names=[f"w{i}" for i in range(n)])
    try:
        with connect(scheduler_file=made.file, patience=Patience(TIMEOUT_S)) as client:
            made.client = client
            client.wait_for_workers(n, timeout=TIMEOUT_S)
            yield made
    finally:
        made.close()


def left(client: Client, before: dict[str, Any]) -> dict[str, Any]:
    """Return what a job has left, empty if nothing: compare each worker, also new ones, with one from before."""
    after = residue(client)
    idle = next(state for place, state in before.items() if place != "scheduler")
    found = {"scheduler": _more(after.pop("scheduler"), before["scheduler"])}
    found |= {place: _more(state, idle) for place, state in after.items()}
    return {place: what for place, what in found.items() if what}


def _more(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return what there is more than before."""
    more: dict[str, Any] = {}
    for key, value in after.items():
        if isinstance(value, int):
            extra: Any = max(value - before[key], 0)
        else:
            extra = [each for each in value if each not in before[key]]
        if extra:
            more[key] = extra
    return more


def check_left(client: Client, before: dict[str, Any]) -> None:
    """Check that a job has left nothing; give its tasks and threads a moment to end."""
    last: list[dict[str, Any]] = []

    def clean() -> bool:
        last.append(left(client, before))
        return not last[-1]

    with contextlib.suppress(AssertionError):
        wait_until(clean, "")
    assert last[-1] == {}, f"left: {last[-1]}"
