"""What fails in an observer ends neither the job nor the other observers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pytest

from singa_dask.errors import ConfigError
from singa_dask.observe.programs.observers import Observers, open_observers


class Recorder:
    """Records the steps it is given, and raises at one of them."""

    name = "recorder"

    def __init__(self, raises_at: int = -1) -> None:
        self.raises_at = raises_at
        self.steps: list[int] = []
        self.closed = False

    def on_event(self, event: Mapping[str, Any]) -> None:
        self.steps.append(event["step"])
        if event["step"] == self.raises_at:
            raise OSError("disk full")

    def close(self, taken_over: bool = False) -> None:
        self.closed = True


def test_an_observer_that_fails_is_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = Recorder(raises_at=1), Recorder()
    with Observers([bad, good]) as observers:
        for step in range(3):
            observers.on_event({"event": "metrics", "step": step})
    assert (bad.steps, bad.closed) == ([0, 1], False)
    assert (good.steps, good.closed) == ([0, 1, 2], True)
    assert [record.getMessage() for record in caplog.records] == [
        "recorder: OSError: disk full. The job continues without it."
    ]


def test_without_keys_there_are_no_observers() -> None:
    assert open_observers("nowhere")._observers == []


def test_missing_packages_are_all_named_with_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "tensorboardX", "tensorboardX.event_file_writer"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError) as caught:
        open_observers("nowhere", tensorboard=True, mlflow="http://127.0.0.1:1")
    assert [problem.path for problem in caught.value.problems] == [("tensorboard",), ("mlflow",)]
    assert "pip install 'singa-dask[tensorboard]'" in str(caught.value)
    assert "pip install 'singa-dask[mlflow]'" in str(caught.value)
