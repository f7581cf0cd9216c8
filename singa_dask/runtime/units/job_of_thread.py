"""Which job a thread works for, so that the log messages of the jobs of one process do not mix."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_JOB: ContextVar[str] = ContextVar("job", default="")


@contextmanager
def in_job(job_id: str) -> Iterator[None]:
    """Let this thread work for a job, and so the threads that it starts in a copy of its context."""
    token = _JOB.set(job_id)
    try:
        yield
    finally:
        _JOB.reset(token)


class JobFilter(logging.Filter):
    """Passes the log messages of threads that work for one job, and of those that work for none.

    Add it to a handler: the handler runs in the thread that logs.

    Parameters
    ----------
    job_id : str
    """

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def filter(self, record: logging.LogRecord) -> bool:
        return _JOB.get() in ("", self.job_id)
