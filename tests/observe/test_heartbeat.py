"""A run directory at a URL shows whether a process still writes there."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.observe import heartbeat
from singa_dask.observe.run_directory import RunDirectory
from singa_dask.observe.run_list import list_runs
from singa_dask.observe.stored_run import StoredRun

STARTED = {"event": "started", "job": "j", "time": 0.0, "topology": {}}


def test_a_remote_run_is_running_while_it_has_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    url, command, write = f"memory://{uuid.uuid4().hex}/run", {"time": 0.0}, fs.write_atomic
    beats, third = [], threading.Event()

    def count(file: str, *given: Any, **named: Any) -> None:
        write(file, *given, **named)
        if file.endswith("heartbeat.json"):
            beats.append(file)
            if len(beats) == 3:
                third.set()

    def states() -> list[str]:
        return [StoredRun(url).state, list_runs(url)[0]["state"]]

    monkeypatch.setattr(heartbeat, "BEAT_S", 0.001)
    monkeypatch.setattr(fs, "write_atomic", count)
    with RunDirectory(url, "", "", command=command, job_id="j") as killed:
        killed.on_event(STARTED)
        assert third.wait(60)
        assert states() == ["running"] * 2
        with RunDirectory(url, "", "", goes_on=True, command=command, job_id="k") as resumed:
            resumed.on_event(STARTED)
            killed._heartbeat.stop()
            assert states() == ["running"] * 2  # it does not delete the file of the new owner
            now = heartbeat.time.time() + heartbeat.LOST_S + 1
            resumed._heartbeat._stopped.set()
            monkeypatch.setattr(heartbeat.time, "time", lambda: now)
            assert states() == ["lost"] * 2
        assert not fs.exists(fs.join(url, "heartbeat.json"))
