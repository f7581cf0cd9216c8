"""A run directory at a URL shows whether a process still writes there."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import ConfigError
from singa_dask.observe.files import heartbeat
from singa_dask.observe.files.run_directory import RunDirectory, check_ended
from singa_dask.observe.files.run_list import list_runs
from singa_dask.observe.files.stored_run import StoredRun

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


def test_a_run_that_runs_there_is_not_replaced() -> None:
    """The scheduler decides about its jobs, and the heartbeat about others, unless their process has died here."""
    url = f"memory://{uuid.uuid4().hex}/run"

    def refusal(known: dict[str, bool]) -> str:
        try:
            check_ended(url, "new", known)
        except ConfigError as error:
            return str(error)
        return ""

    def take(pid: int, host: str, beat: float) -> None:
        fs.write_atomic(fs.join(url, "owner.json"), json.dumps({"owner": "old", "pid": pid, "host": host}))
        fs.write_atomic(fs.join(url, "heartbeat.json"), json.dumps({"time": beat}))

    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    now, here = time.time(), socket.gethostname()
    assert not refusal({})
    assert "(job old). Stop it first: singa-dask stop old." in refusal({"old": True})
    with RunDirectory(url, "", "", command={"time": 0.0}, job_id="old") as running:
        running.on_event(STARTED)
        assert re.search(r"a run is running there \(job old, process \d+ on .*singa-dask stop old", refusal({}))
        assert not refusal({"old": False})
        assert refusal({"older": False})
        check_ended(url, "old", {"old": True})  # the next driver of the same job
    assert not refusal({})
    take(ended.pid, here, now)
    assert not refusal({})
    take(ended.pid, f"not-{here}", now)
    assert refusal({})
    take(ended.pid, f"not-{here}", now - heartbeat.LOST_S - 1)
    assert not refusal({})
