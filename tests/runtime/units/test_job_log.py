"""JobFilter: the log messages of the jobs of one process do not mix."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path

import pytest

import singa_dask as sd
from singa_dask.runtime.units.job_of_thread import JobFilter, in_job
from tests.jobs.conftest import KEYS, digits_net

LOGGER = logging.getLogger("singa_dask.tests.job_log")


class Kept(logging.Handler):
    """Keeps the messages of one job."""

    def __init__(self, job_id: str) -> None:
        super().__init__()
        self.addFilter(JobFilter(job_id))
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def logs() -> Iterator[tuple[Kept, Kept]]:
    """Return the handlers of two jobs."""
    handlers = Kept("one"), Kept("two")
    for handler in handlers:
        LOGGER.addHandler(handler)
    yield handlers
    for handler in handlers:
        LOGGER.removeHandler(handler)


def test_a_message_goes_to_the_job_whose_thread_logs_it(logs: tuple[Kept, Kept]) -> None:
    with in_job("one"):
        LOGGER.warning("of one")
        with in_job("two"):
            LOGGER.warning("of two")
        LOGGER.warning("of one again")
    one, two = logs
    assert one.messages == ["of one", "of one again"]
    assert two.messages == ["of two"]


def test_a_message_of_no_job_goes_to_each_job_once(logs: tuple[Kept, Kept]) -> None:
    LOGGER.warning("of nobody")
    assert [log.messages for log in logs] == [["of nobody"], ["of nobody"]]


def test_a_thread_that_a_job_starts_belongs_to_it(logs: tuple[Kept, Kept]) -> None:
    with in_job("two"):
        thread = threading.Thread(target=copy_context().run, args=(LOGGER.warning, "of a thread"))
    thread.start()
    thread.join()
    assert [log.messages for log in logs] == [[], ["of a thread"]]


@pytest.mark.cluster
def test_a_driver_logs_for_its_own_job(tmp_path: Path) -> None:
    logger, other, all_jobs, run = logging.getLogger("singa_dask"), Kept("other"), Kept("all"), tmp_path / "run"
    all_jobs.filters.clear()
    for handler in (other, all_jobs):
        logger.addHandler(handler)
    try:
        job = sd.Job(digits_net(), train_steps=2, disp_freq=1, **KEYS)
        sd.train(job, run_dir=str(run), progress=False, on_event=lambda _: (run / "job.yaml").unlink(missing_ok=True))
    finally:
        for handler in (other, all_jobs):
            logger.removeHandler(handler)
    warning = f"{run / 'job.yaml'}: the file was removed, and is written again."
    assert warning in all_jobs.messages
    assert warning not in other.messages
