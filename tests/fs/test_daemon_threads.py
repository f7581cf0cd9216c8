"""DaemonThreads: calls one thing after the other in a thread, and is never waited for when it is closed."""

from __future__ import annotations

import threading

import pytest

from singa_dask.fs import daemon_threads
from singa_dask.fs.daemon_threads import DaemonThreads
from singa_dask.runtime.units.job_of_thread import _JOB, in_job
from tests.interrupts import interrupted_conditions


def test_what_is_submitted_is_done_in_order_in_the_context_of_the_caller() -> None:
    writer, seen, done = DaemonThreads(1, "checkpoint"), list[tuple[int, str]](), threading.Event()
    for i, job in enumerate(("one", "two")):
        with in_job(job):
            writer.submit(lambda i=i: seen.append((i, _JOB.get())))  # type: ignore[misc]
    writer.submit(done.set)
    assert done.wait(60)
    assert seen == [(0, "one"), (1, "two")]
    writer.close()


def test_closing_drops_what_has_not_begun_and_waits_for_nothing() -> None:
    writer, begun, leave, seen = DaemonThreads(1, "checkpoint"), threading.Event(), threading.Event(), list[str]()

    def hang() -> None:
        begun.set()
        leave.wait(60)
        seen.append("written")

    writer.submit(hang)
    writer.submit(lambda: seen.append("dropped"))
    waiting = writer.future(lambda: seen.append("dropped"))
    assert begun.wait(60)
    writer.close()
    writer.submit(lambda: seen.append("too late"))
    assert all(future.cancelled() for future in (waiting, writer.future(lambda: seen.append("too late"))))
    assert seen == []
    (thread,) = (each for each in threading.enumerate() if each.name == "checkpoint-1")
    assert thread.daemon
    leave.set()
    thread.join(60)
    assert seen == ["written"]


def test_an_error_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    writer, done = DaemonThreads(1, "checkpoint"), threading.Event()

    def fail() -> None:
        raise ValueError("no disk")

    # a cluster that other tests share keeps Dask quiet, and with it handlers of the root logger
    with caplog.at_level("WARNING", "singa_dask"):
        writer.submit(fail)
        writer.submit(done.set)
        assert done.wait(60)
    assert "no disk" in caplog.text
    writer.close()


def test_an_exception_of_a_signal_leaves_no_lock_taken() -> None:
    reader, done = DaemonThreads(1, "reader"), threading.Event()
    with interrupted_conditions(daemon_threads):
        reader.submit(lambda: None)
    other = threading.Thread(target=reader.submit, args=(done.set,), daemon=True)
    other.start()
    assert done.wait(20)
    reader.close()
