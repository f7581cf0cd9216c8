"""What is repeated while servers do not answer, how often, and what is not."""

from __future__ import annotations

import errno
from collections.abc import Callable

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
    assert caplog.messages == ["[Errno 110] no answer Retrying, attempt 2."]
