"""Repeat a call that fails because a server does not answer."""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from singa_dask.cancellation import pause
from singa_dask.errors import DataError

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# errors after which a call may succeed if it is repeated
TRANSIENT = (errno.EIO, errno.ETIMEDOUT)

# Delays before a call is repeated; failures later than `WITHIN_S` after the first call are final.
BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, *[8.0] * 8)
WITHIN_S = 120.0


def patiently(function: Callable[[], Result]) -> Result:
    """Call a function; repeat it for up to two minutes if it fails because servers do not answer.

    Raises
    ------
    OSError, DataError
        The last one, or the first one that a repetition would not mend.
    """
    return repeated(lambda attempt: function(), BACK_OFF_S, WITHIN_S, logging.WARNING)


def repeated(
    function: Callable[[int], Result],
    delays_s: Sequence[float],
    within_s: float = math.inf,
    level: int = logging.DEBUG,
) -> Result:
    """Call a function; repeat it after each of some delays if it fails because servers do not answer.

    Parameters
    ----------
    function : callable
        Is passed the number of the attempt, from 0 on.
    delays_s : sequence of float
        There is no event to wait for: the servers may be restarting.
    within_s : float
        Failures that come more than so many seconds after the first call are final.
    level : int
        Of `logging`, at which each failure is logged that is followed by a repetition.

    Raises
    ------
    OSError, DataError
        The last one, or the first one that a repetition would not mend.
    """
    began = time.monotonic()
    for attempt, delay_s in enumerate(delays_s):
        try:
            return function(attempt)
        except (OSError, DataError) as error:
            cause = error.__cause__ if isinstance(error, DataError) else error
            is_transient = isinstance(cause, OSError) and cause.errno in TRANSIENT
            if not is_transient or time.monotonic() - began > within_s:
                raise
            logger.log(level, "%s This is tried again, attempt %d.", error, attempt + 2)
        pause(delay_s)
    return function(len(delays_s))
