"""What is repeated while servers do not answer, how often, and what is not."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from singa_dask.errors import DataError
from singa_dask.fs import retry
from singa_dask.fs.retry import patiently, repeated

SILENT = OSError(errno.ETIMEDOUT, "no answer")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses in seconds, which are not made."""
    made: list[float] = []
    monkeypatch.setattr(retry, "pause", made.append)
    return made


def failing(*errors: Exception) -> tuple[list[int], Callable[[int], int]]:
    """Return the attempts, and a function that fails with one error after the other."""
    attempts: list[int] = []

    def function(attempt: int) -> int:
        attempts.append(attempt)
        if attempt < len(errors):
            raise errors[attempt]
        return attempt

    return attempts, function


def test_silent_servers_are_asked_again(pauses: list[float]) -> None:
    named = DataError("hdfs://nn/x: no answer")
    named.__cause__ = SILENT
    assert repeated(failing(SILENT, named)[1], (1.0, 2.0)) == 2
    assert pauses == [1.0, 2.0]


def test_the_last_error_is_raised() -> None:
    attempts, function = failing(*[SILENT] * 4)
    with pytest.raises(OSError, match="no answer"):
        repeated(function, (1.0, 2.0))
    assert attempts == [0, 1, 2]


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "denied"), DataError("damaged")])
def test_what_a_repetition_would_not_mend_is_raised_at_once(error: Exception, pauses: list[float]) -> None:
    with pytest.raises(type(error)):
        repeated(failing(error)[1], (1.0, 2.0))
    assert pauses == []


def test_repetitions_end_after_some_time(caplog: pytest.LogCaptureFixture) -> None:
    attempts, function = failing(*[SILENT] * 9)
    with pytest.raises(OSError, match="no answer"):
        repeated(function, [1.0] * 9, within_s=-1.0)
    assert attempts == [0]
    answers = iter([SILENT, None])

    def answer() -> str:
        if error := next(answers):
            raise error
        return "there"

    assert patiently(answer) == "there"
    first, last = caplog.messages
    assert first == "[Errno 110] no answer Retrying, attempt 2."
    assert last.startswith("No call is being retried any more, 0.")


def test_an_outage_is_logged_once_for_all_threads(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    n_threads = 8
    have_failed = threading.Barrier(n_threads)

    def read(thread: int) -> int:
        _, function = failing(*[SILENT] * 3)

        def fail_with_others(attempt: int) -> int:
            if attempt == 2:  # all have failed, and none has an answer
                have_failed.wait()
            return function(attempt)

        return repeated(fail_with_others, [1.0] * 9, level=logging.WARNING)

    with ThreadPoolExecutor(n_threads) as threads:
        assert list(threads.map(read, range(n_threads))) == [3] * n_threads
    assert [message.split(",")[0] for message in caplog.messages] == [
        "[Errno 110] no answer Retrying",
        "No call is being retried any more",
    ]
