"""Repeat what fails while the servers of a filesystem do not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from singa_dask.data.fs.hdfs_connection import TRANSIENT
from singa_dask.errors import DataError
from singa_dask.gate import pause

__all__ = ["patiently"]

Result = TypeVar("Result")

log = logging.getLogger(__name__)
# Delays before a call is repeated; no repetition begins later than so many seconds after the first call.
BACK_OFF_S = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, *[8.0] * 8)
WITHIN_S = 120.0


def patiently(function: Callable[[], Result]) -> Result:
    """Call a function; repeat it for up to two minutes if it fails because servers do not answer.

    Raises
    ------
    OSError, DataError
        The last one, or the first one that a repetition would not mend.
    """
    began = time.monotonic()
    for attempt, wait_s in enumerate(BACK_OFF_S):
        try:
            return function()
        except (OSError, DataError) as error:
            cause = error.__cause__ if isinstance(error, DataError) else error
            is_transient = isinstance(cause, OSError) and cause.errno in TRANSIENT
            if not is_transient or time.monotonic() - began > WITHIN_S:
                raise
            log.warning("%s This is tried again, attempt %d.", error, attempt + 2)
        pause(wait_s)
    return function()
