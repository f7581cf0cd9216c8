"""Calls of a client to the scheduler, and to its plug-in `Jobs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client
from distributed.client import ClosedClientError

from singa_dask.errors import ClusterError, ConfigError, SchedulerError, SingaError
from singa_dask.runtime.job.limits import limit

GONE = (AttributeError, ClosedClientError, KeyError, OSError, RuntimeError, TimeoutError)
"""Errors of a client whose scheduler is gone. A client that has given up has no scheduler, and raises AttributeError. A
bug in an operation of the scheduler raises `SchedulerError` instead."""
UNANSWERED = (*GONE, SchedulerError)
"""Errors of a call without an answer."""


@contextmanager
def expecting_answer(client: Client, more: str = "") -> Iterator[None]:
    """Convert an error of `GONE` in the context to a `ClusterError`, with ``more`` added to its message."""
    try:
        yield
    except GONE as error:
        if isinstance(error, SingaError):  # e.g. a DataError, which is an OSError
            raise
        scheduler: Any = client.scheduler
        where, why = getattr(scheduler, "address", "the scheduler"), str(error) or type(error).__name__
        raise ClusterError(f"{where}: the scheduler does not answer: {why}.{more}") from error


def ask_jobs(client: Client, op: str, /, timeout_s: float | None = None, **arguments: Any) -> Any:
    """Call an operation of the scheduler plug-in `Jobs`, and return the answer.

    The scheduler must answer within ``timeout_s``, by default the limit ``question``.

    Raises
    ------
    SchedulerError
        A bug has prevented the answer. If the scheduler is gone, the error is one of `GONE`.
    """
    scheduler: Any = client.scheduler
    timeout_s = limit("question") if timeout_s is None else timeout_s
    try:
        return client.sync(getattr(scheduler, op), **arguments, callback_timeout=timeout_s)
    except UnicodeEncodeError as error:
        raise ConfigError(f"{error.object}: the name is not UTF-8, so it cannot be sent. Choose another.") from None


def present_workers(client: Client) -> dict[str, dict[str, Any]]:
    """Return the scheduler's information on each Dask worker (``nthreads``, ``host``, ...), by address.

    Without a connection the result is empty. `Client.scheduler_info` is not used, because it may omit workers.
    """
    if client.scheduler is None:
        return {}
    try:
        identity = client.sync(client.scheduler.identity, n_workers=-1)
    except OSError:
        return {}
    return dict(identity["workers"])
