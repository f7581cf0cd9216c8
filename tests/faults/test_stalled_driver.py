"""A driver that is stopped, replaced, and wakes up after its successor has written the run directory."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from singa_dask import fs
from singa_dask.observe.files.journal import read_objects
from singa_dask.observe.files.run_directory import read_summary
from tests.fs.s3_server import s3_server
from tests.runtime.job.test_detached import arguments, ask, call, driver_pid, has_ended
from tests.runtime.processes import cluster, wait_until
from tests.selection import circles

pytestmark = [pytest.mark.cluster, pytest.mark.long]

N_STEPS = 300


@contextlib.contextmanager
def run_directory(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if kind == "local":
        yield str(folder / "run")
        return
    with s3_server() as server:
        monkeypatch.setitem(fsspec.config.conf, "s3", server.options)
        for key in ("key", "secret", "endpoint_url"):
            monkeypatch.setenv(f"FSSPEC_S3_{key.upper()}", server.options[key])
        yield "s3://lab/run"


def has_driver() -> bool:
    return any(thread.name.startswith("driver-") for thread in threading.enumerate())


def files_of(url: str) -> dict[str, bytes]:
    names = ["metrics.jsonl", "summary.json", "commands.jsonl", *(f"log/{name}" for name in fs.ls(f"{url}/log"))]
    return {name: fs.read_bytes(f"{url}/{name}") for name in names}


@pytest.mark.parametrize("kind", circles(["s3", "local"]))
def test_it_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with run_directory(kind, tmp_path, monkeypatch) as url, cluster(tmp_path, names="abc") as (_, client):
        command = [*arguments(client, tmp_path, "--detach", "--run-dir", url, steps=N_STEPS)]
        done = call(*command)
        assert done.exit_code == 0, done.stderr
        job_id = done.stdout.strip()
        wait_until(lambda: len(shown(url)) > 5, "it trains")
        address = ask(client, driver_pid, job_id)
        (pid,) = client.run(os.getpid, workers=[address]).values()
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: ask(client, has_ended, job_id), "another driver has recorded its end")
            wanted = files_of(url)
            assert address != ask(client, driver_pid, job_id)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not any(client.run(has_driver, workers=[address]).values()), "the one that woke up has left")
        assert files_of(url) == wanted
        assert read_summary(url)["state"] == "done"
        assert shown(url) == [*range(0, N_STEPS, 10), N_STEPS - 1]


def shown(url: str) -> list[int]:
    events: list[dict[str, Any]] = read_objects(f"{url}/metrics.jsonl")
    return [event["step"] for event in events if event["event"] == "metrics"]
