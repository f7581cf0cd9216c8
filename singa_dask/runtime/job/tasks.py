"""Run tasks on a Dask cluster; give up when its workers are lost."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from distributed import Client, Future, KilledWorker, get_worker
from distributed.client import FutureCancelledError

from singa_dask.errors import Aborted, LostUnitError
from singa_dask.runtime.job.cluster import present_workers
from singa_dask.runtime.job.part_files import reading

# interval of checks for workers, and how long they may take to come back
LOOK_S = 2.0
WORKERS_BACK_S = 20.0
# how long workers may take to answer a call that can be left out
CALL_S = 10.0

T = TypeVar("T")


class Runner(Protocol):
    """Runs tasks in any order, and yields their results."""

    def __call__(self, tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Run the tasks."""


def run_here(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
    """Run tasks one after the other in this thread."""
    return (task() for task in tasks)


def on_dask(
    client: Client,
    datasets: Sequence[Sequence[Any]] = (),
    workers: Sequence[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Runner:
    """Return a runner on a cluster; when a task fails, those that have not started are cancelled.

    Tasks can read the part files of ``datasets``, catalogs as plain values. They run on ``workers`` while these are
    there. ``check`` is called every few seconds; if it raises an error, the tasks are cancelled.
    """

    def run(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        call = partial(_call, datasets=datasets)
        futures = client.map(call, tasks, pure=False, workers=workers, allow_other_workers=workers is not None)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            for _ in futures:
                yield _next(client, done, check).result()
        except KilledWorker as error:
            raise _lost(str(error)) from error
        except FutureCancelledError as error:
            raise _lost("their scheduler is gone or was restarted") from error
        finally:
            client.cancel(futures)

    return run


def on_each_worker(client: Client) -> Callable[[Callable[[], None]], None]:
    """Return a function that calls another one on each Dask worker; those that do not answer soon are left out."""

    def call(function: Callable[[], None]) -> None:
        with contextlib.suppress(TimeoutError, OSError):
            client.run(function, on_error="ignore", callback_timeout=CALL_S)

    return call


def _next(client: Client, done: SimpleQueue[Future[T]], check: Callable[[], None]) -> Future[T]:
    """Wait for a task to end, as long as there are workers or they may come back."""
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_S)
        except Empty:
            check()
            if present_workers(client):
                since = time.monotonic()
            elif time.monotonic() - since > WORKERS_BACK_S:
                raise _lost("none is left") from None


def _lost(why: str) -> LostUnitError:
    return LostUnitError(f"Dask workers were lost: {why}. Give the same command again.")


def _call(task: Callable[[], T], datasets: Sequence[Sequence[Any]]) -> T:
    with reading(datasets):
        return task()


def check_wanted() -> None:
    """Raise an error if Dask does not need the result of this task any more.

    Raises
    ------
    Aborted
        The task was cancelled.
    """
    try:
        worker = get_worker()
    except ValueError:
        return
    task = worker.state.tasks.get(worker.get_current_task())
    if task is None or task.state != "executing":
        raise Aborted("the task was cancelled")
