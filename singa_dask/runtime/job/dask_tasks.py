"""Run functions as tasks on Dask workers, or one after the other in this thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from dask.utils import format_bytes
from distributed import Client, Future, KilledWorker, Status, get_worker
from distributed.client import FutureCancelledError
from distributed.protocol.pickle import dumps, loads

from singa_dask.comm.remote_import import Guarded
from singa_dask.errors import Aborted, ClusterError, LostUnitError, UnloadableError
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.dask_worker.part_files import reading
from singa_dask.runtime.job.limits import limit
from singa_dask.wording import listed

LOOK_S = 2.0
"""Seconds between two checks for a cancelled job and for lost Dask workers."""

T = TypeVar("T")


class Runner(Protocol):
    """Runs tasks in any order, and yields their results."""

    def __call__(self, tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Run the tasks; yield each result when its task has ended."""


def run_here(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Run tasks one after the other in this thread."""
    return (task() for task in tasks)


def on_dask(
    client: Client,
    datasets: Sequence[Sequence[Any]] = (),
    workers: Sequence[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Runner:
    """Return a runner that runs tasks on a cluster.

    If a task fails, the runner cancels all other tasks.

    Parameters
    ----------
    datasets : sequence
        Catalogs, as plain values, of the part files that the tasks may read.
    workers : sequence of str, optional
        Dask workers that run the tasks if possible. By default any Dask worker may run them.
    check : callable
        Called every few seconds. If ``check`` raises an error, the runner cancels the tasks and raises the error.
    """

    def run(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        call = Guarded(partial(_call, datasets=datasets))
        waiting: dict[Future[T], bytes] = {}
        submitted: list[Future[T]] = []
        done: SimpleQueue[Future[T]] = SimpleQueue()
        preferred = workers

        def submit(calls: Sequence[bytes]) -> None:
            where: Any = {"workers": preferred, "allow_other_workers": preferred is not None}
            futures = client.map(call, calls, key="singa-dask-task", pure=False, **where)
            submitted.extend(futures)
            waiting.update(zip(futures, calls, strict=True))
            for future in futures:
                future.add_done_callback(done.put)

        def look() -> None:
            nonlocal preferred
            check()
            # after the last preferred Dask worker is gone, Dask gives no tasks to Dask workers that join
            if preferred and (present := present_workers(client)) and not present.keys() & set(preferred):
                preferred, stuck = None, dict(waiting)
                waiting.clear()
                client.cancel(list(stuck))
                submit(list(stuck.values()))

        submit(list(map(dumps, tasks)))
        try:
            while waiting:
                ended = next_ended(client, done, look)
                if waiting.pop(ended, None) is not None:
                    yield result_of(ended)
        finally:
            # cancel ended tasks, too: their errors would keep them on the scheduler
            client.cancel(submitted)

    return run


def on_each_worker(
    client: Client, workers: Sequence[str] | None = None
) -> Callable[[Callable[[], T]], Mapping[str, T]]:
    """Return an object that calls a function on each of ``workers``, and returns results by address.

    The default is all Dask workers. Results of Dask workers that do not answer soon are missing.
    """

    def call(function: Callable[[], T]) -> Mapping[str, T]:
        with contextlib.suppress(TimeoutError, OSError):
            where: Any = {"workers": workers, "on_error": "ignore", "callback_timeout": limit("question")}
            answers: Mapping[str, T] = client.run(function, **where)
            return answers
        return {}

    return call


def next_ended(client: Client, done: SimpleQueue[Future[T]], check: Callable[[], None]) -> Future[T]:
    """Wait until a task ends, and return it; call ``check`` every few seconds.

    Parameters
    ----------
    done : SimpleQueue
        Queue into which each task is put when it ends.
    check : callable
        May raise an error to end the wait.

    Raises
    ------
    LostUnitError
        The cluster has had no Dask workers for too long.
    ClusterError
        All its Dask workers have been paused for too long, because their memory is full.
    """
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_S)
        except Empty:
            check()
            present = present_workers(client)
            if any(each["status"] != Status.paused.name for each in present.values()):
                since = time.monotonic()
            elif time.monotonic() - since > limit("workers"):
                raise _paused(present) if present else _lost("none is left") from None


def result_of(ended: Future[T]) -> T:
    """Return the result of an ended task, or raise its error.

    Raises
    ------
    UnloadableError
        The Dask worker could not import a module that the task needs.
    LostUnitError
        The task was lost with its Dask worker or its scheduler.
    """
    try:
        return ended.result()
    except ImportError as error:
        raise UnloadableError(str(error)) from error
    except KilledWorker as error:
        last = error.last_worker
        raise LostUnitError(
            f"Dask workers were lost: {error.allowed_failures + 1} died while running a task, perhaps because their "
            f"memory was full. The last one, {last.address}, had {format_bytes(last.memory_limit)}. See the logs of "
            "their nannies."
        ) from error
    except FutureCancelledError as error:
        raise _lost("their scheduler is gone or was restarted") from error


def _lost(why: str) -> LostUnitError:
    return LostUnitError(f"Dask workers were lost: {why}. Give the same command again.")


def _paused(workers: Mapping[str, Mapping[str, Any]]) -> ClusterError:
    limits = [f"{address} of {format_bytes(each['memory_limit'])}" for address, each in sorted(workers.items())]
    return ClusterError(
        f"all Dask workers are paused, because their memory is full: {listed(limits)}. "
        "Start Dask workers with a larger --memory-limit."
    )


def _call(task: bytes, datasets: Sequence[Sequence[Any]]) -> Any:
    with reading(datasets):
        return loads(task)()


def task_memory() -> int | None:
    """Return the memory that this task may use: its Dask worker's limit per thread, in bytes.

    Return None if the limit is unknown.
    """
    try:
        worker = get_worker()
    except ValueError:
        return None
    limit_bytes = worker.memory_manager.memory_limit
    return limit_bytes and limit_bytes // worker.state.nthreads


def check_wanted() -> None:
    """Raise `Aborted` if this task was cancelled."""
    try:
        worker = get_worker()
    except ValueError:
        return
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state != "executing":
        raise Aborted("the task was cancelled")
