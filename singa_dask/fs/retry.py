"""Retry calls that fail because a server does not answer."""

from __future__ import annotations

import errno
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from singa_dask.cancellation import pause
from singa_dask.errors import DataError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# values of errno after which a retry may succeed
TRANSIENT = (errno.EIO, errno.ETIMEDOUT, errno.ECONNREFUSED)

# seconds before each retry; a failure more than `WITHIN_S` seconds after the first call is final
BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, *[8.0] * 8)
WITHIN_S = 120.0


class Outage:
    """A period in which at least one call is being retried."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_calls = 0
        self._began = 0.0

    def begin(self) -> bool:
        """Count a call that is retried; return whether it is the first of the outage."""
        with self._lock:
            self._n_calls += 1
            if self._n_calls == 1:
                self._began = time.monotonic()
            return self._n_calls == 1

    def end(self) -> float:
        """Count the end of a call's retries; return how many seconds the outage lasted, or 0 if it goes on."""
        with self._lock:
            self._n_calls -= 1
            return 0.0 if self._n_calls else time.monotonic() - self._began


outages = {level: Outage() for level in (logging.DEBUG, logging.WARNING)}
"""Logging level -> the outage whose beginning and end are logged at this level."""


def patiently(function: Callable[[], Result]) -> Result:
    """Call a function, and retry for up to two minutes while servers do not answer.

    See `repeated` for errors.
    """
    return repeated(lambda attempt: function(), BACK_OFF_S, WITHIN_S, logging.WARNING)


def repeated(
    function: Callable[[int], Result],
    delays_s: Sequence[float],
    within_s: float = math.inf,
    level: int = logging.DEBUG,
) -> Result:
    """Call a function, and retry after delays while servers do not answer.

    Parameters
    ----------
    function : callable
        The function. It takes the number of the attempt, counted from 0.
    delays_s : sequence of float
        Seconds before each retry.
    within_s : float
        A failure that occurs more than this many seconds after the first call is final.
    level : {logging.DEBUG, logging.WARNING}
        Level for the first failure of an outage, and for its end. Other failures are logged at DEBUG:
        in an outage, many threads fail again and again.

    Raises
    ------
    OSError, DataError
        The last error, or the first error for which a retry cannot help.
    """
    began = time.monotonic()
    outage = outages[level]
    has_failed = False
    try:
        for attempt, delay_s in enumerate(delays_s):
            try:
                return function(attempt)
            except (OSError, DataError) as error:
                cause = error.__cause__ if isinstance(error, DataError) else error
                is_transient = isinstance(cause, OSError) and cause.errno in TRANSIENT
                if not is_transient or time.monotonic() - began > within_s:
                    raise
                is_first = not has_failed and outage.begin()
                has_failed = True
                logger.log(level if is_first else logging.DEBUG, "%s Retrying, attempt %d.", error, attempt + 2)
            pause(delay_s)
        return function(len(delays_s))
    finally:
        if has_failed and (lasted_s := outage.end()):
            logger.log(level, "No call is being retried any more, %.1f s after the first failure.", lasted_s)
