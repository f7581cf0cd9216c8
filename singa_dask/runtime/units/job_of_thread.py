"""Record the job of each thread, so that log messages of jobs in one process do not mix."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_JOB: ContextVar[str] = ContextVar("job", default="")


@contextmanager
def in_job(job_id: str) -> Iterator[None]:
    """Assign this thread to a job during the context, and threads that run in a copy of its contextvars."""
    token = _JOB.set(job_id)
    try:
        yield
    finally:
        _JOB.reset(token)


class JobFilter(logging.Filter):
    """Passes the log messages of threads that work for one given job, or for no job."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.job_id = job_id

    def filter(self, record: logging.LogRecord) -> bool:
        return _JOB.get() in ("", self.job_id)
