"""Calls of a client to `Jobs` on the scheduler."""

from __future__ import annotations

from typing import Any

from distributed import Client
from distributed.client import ClosedClientError

from singa_dask.errors import ConfigError, SchedulerError
from singa_dask.runtime.job.limits import limit

GONE = (AttributeError, ClosedClientError, KeyError, OSError, RuntimeError, TimeoutError)
"""Errors of a client whose scheduler is gone. AttributeError is one: a client that has given up has no scheduler. A bug
in an operation of the scheduler is none of them; see `SchedulerError`."""
UNANSWERED = (*GONE, SchedulerError)
"""Errors of a call that has no answer."""


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
