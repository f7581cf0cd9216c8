"""Run tasks on a Dask cluster; give up when its workers are lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from distributed import Client, Future, KilledWorker
from distributed.client import FutureCancelledError

from singa_dask.errors import LostUnitError

__all__ = ["Runner", "on_dask"]

# interval of checks for workers, and how long they may take to come back
LOOK_S = 2.0
WORKERS_BACK_S = 20.0

T = TypeVar("T")


class Runner(Protocol):
    """Runs tasks in any order, and yields their results."""

    def __call__(self, tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        """Run the tasks."""


def on_dask(client: Client) -> Runner:
    """Return a runner on a cluster; when a task fails, those that have not started are cancelled."""

    def run(tasks: Sequence[Callable[[], T]]) -> Iterator[T]:
        futures = client.map(_call, tasks, pure=False)
        done: SimpleQueue[Future[T]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        try:
            for _ in futures:
                yield _next(client, done).result()
        except KilledWorker as error:
            raise _lost(str(error)) from error
        except FutureCancelledError as error:
            raise _lost("their scheduler is gone or was restarted") from error
        finally:
            client.cancel(futures)

    return run


def _next(client: Client, done: SimpleQueue[Future[T]]) -> Future[T]:
    """Wait for a task to end, as long as there are workers or they may come back."""
    since = time.monotonic()
    while True:
        try:
            return done.get(timeout=LOOK_S)
        except Empty:
            if client.scheduler_info(n_workers=-1)["workers"]:
                since = time.monotonic()
            elif time.monotonic() - since > WORKERS_BACK_S:
                raise _lost("none is left") from None


def _lost(why: str) -> LostUnitError:
    return LostUnitError(f"Dask workers were lost: {why}. Give the same command again.")


def _call(task: Callable[[], T]) -> T:
    return task()
