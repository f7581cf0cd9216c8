"""Finding a cluster: what is not there is said in words and in time, and can be waited for."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client
from distributed.comm.addressing import parse_address, parse_host_port

from singa_dask.errors import ClusterError
from singa_dask.runtime import Patience, connect, plan_processes, wait_for_room
from singa_dask.runtime.job import patience
from singa_dask.runtime.job.calls import present_workers
from singa_dask.runtime.job.limits import LIMITS, Limit
from tests.cli.conftest import Call, call, job
from tests.runtime.harness import ALLREDUCE, SINGLE, mlp
from tests.runtime.processes import ROOT, Cluster, program, wait_until

__all__ = ["call", "job"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon on what does not answer."""
    monkeypatch.setitem(LIMITS, "connect", Limit("", "0.5s"))


@contextlib.contextmanager
def mute() -> Iterator[str]:
    """Listen, and say nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def web() -> Iterator[str]:
    """Speak HTTP, as the dashboard of a scheduler does."""

    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def address(text: str) -> Iterator[str]:
    yield text


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (address("tcp://127.0.0.1:9"), "Connection refused"),
        (address("nothing"), "missing port number in address 'nothing'"),
        (mute(), "no answer in 0.5 s"),
        (web(), ""),
    ],
    ids=["closed", "no address", "mute", "web"],
)
def test_what_is_no_scheduler_is_named_with_the_reason(short: None, there: Any, why: str) -> None:
    with there as place, pytest.raises(ClusterError) as caught:
        with connect(place):
            pass
    assert str(caught.value).startswith(f"{place}: no Dask scheduler answers there ({why}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory. Expected the file that dask-scheduler --scheduler-file"),
        ("{", "the file has no address of a scheduler"),
        ("[]", "the file has no address of a scheduler"),
        (json.dumps({"address": "tcp://127.0.0.1:9"}), "The file may be of a scheduler that has ended."),
    ],
    ids=["missing", "cut off", "other", "stale"],
)
def test_a_scheduler_file_that_is_of_no_use_is_an_error(
    call: Call, job: Path, tmp_path: Path, short: None, text: str | None, said: str
) -> None:
    file = tmp_path / "scheduler.json"
    if text is not None:
        file.write_text(text)
    result = call("run", job, "--scheduler-file", file, "--run-dir", tmp_path / "run")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"{file}: ")
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


class Way:
    """A way to a server, which can be cut: then connections end, and no others come about."""

    def __init__(self, address: str) -> None:
        self._there = parse_host_port(parse_address(address)[1])
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.port = 0
        self.do(self.mend())

    def do(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()

    def close(self) -> None:
        self.do(self.cut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._there)
        ways = [asyncio.ensure_future(self._pass(*way)) for way in ((reader, back), (there, writer))]
        self._tasks.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for each in (back, writer):
            each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)


@pytest.mark.cluster
def test_a_lost_connection_is_made_again_for_as_long_as_the_limit_says(client: Client, short: None) -> None:
    way = Way(client.scheduler.address)
    try:
        with connect(f"tcp://127.0.0.1:{way.port}") as cut_off:
            way.do(way.cut())
            wait_until(lambda: cut_off.status == "connecting", "it knows")
            threading.Event().wait(1.0)  # twice as long as the first connection may take
            way.do(way.mend())
            wait_until(lambda: cut_off.status != "connecting", "it is back, or has given up")
            assert cut_off.status == "running"
    finally:
        way.close()


@pytest.mark.cluster
def test_a_worker_is_no_scheduler(client: Client) -> None:
    worker = next(iter(present_workers(client)))
    with pytest.raises(ClusterError, match=f"{worker}: no Dask scheduler answers there \\(a Dask worker does\\)"):
        with connect(worker):
            pass


def test_an_error_that_does_not_pass_ends_the_wait() -> None:
    said: list[str] = []
    since = time.monotonic()

    def attempt() -> None:
        raise ClusterError("nobody is there.")

    with pytest.raises(ClusterError, match=r"^nobody is there\. Waited 0\.7 s\.$"):
        Patience(0.7, said.append).until(attempt)
    assert time.monotonic() - since >= 0.7
    assert said == ["waiting, 1 s at most: nobody is there."]


@pytest.mark.long
def test_what_is_missing_is_said_when_it_changes() -> None:
    said: list[str] = []
    errors = iter(["no scheduler", "no scheduler", "no workers", ""])

    def attempt() -> str:
        if error := next(errors):
            raise ClusterError(error)
        return "there"

    assert Patience(60, said.append).until(attempt) == "there"
    assert [line.partition(": ")[2] for line in said] == ["no scheduler", "no workers"]


def test_numbers_that_change_often_are_said_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    free, now = itertools.cycle("01"), [0.0]

    def attempt() -> None:
        raise ClusterError(f"no room: {next(free)} of 2 threads are free. Start more workers.")

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(patience, "pause", pause)
    with pytest.raises(ClusterError, match="no room"):
        Patience(25, said.append).until(attempt)
    assert said == [
        "waiting, 25 s at most: no room: 0 of 2 threads are free. Start more workers.",
        "still waiting, 14 s at most: no room: 1 of 2 threads are free.",
        "still waiting, 4 s at most: no room: 0 of 2 threads are free.",
    ]


@pytest.mark.cluster
def test_a_job_waits_for_room(client: Client) -> None:
    wait_for_room(client, plan_processes(mlp(cluster=ALLREDUCE).cluster), Patience(5))
    three = {"nworkers_per_group": 3, "nservers_per_group": 3}
    wait_for_room(client, plan_processes(mlp(cluster={**three, "elastic": {"max_processes": 3}}).cluster), Patience())
    too_large = plan_processes(mlp(cluster=three).cluster)
    with pytest.raises(ClusterError, match=r"needs 3 Dask workers .* 2 are ready .* Waited 0\.6 s\."):
        wait_for_room(client, too_large, Patience(0.6))
    wait_for_room(client, plan_processes(mlp(cluster=SINGLE).cluster), Patience())


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.parametrize(
    "verb",
    [
        ["run", "--set", "train_steps=2", "--run-dir", "{tmp}/run"],
        pytest.param(["test", "--init-from", "{tmp}/trained"], marks=pytest.mark.soak),
    ],
    ids=["run", "test"],
)
def test_commands_may_come_before_the_cluster(call: Call, job: Path, tmp_path: Path, verb: list[str]) -> None:
    trained = call("run", job, "--run-dir", tmp_path / "trained", "--set", "train_steps=2")
    assert trained.exit_code == 0, trained.output
    (tmp_path / "cluster").mkdir()
    options = [each.format(tmp=tmp_path) for each in verb[1:]]
    file = str(tmp_path / "cluster" / "scheduler.json")
    command = program(verb[0], str(job), *options, "--scheduler-file", file, "--wait", "60")
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        first = waiting.stderr.readline()
        made = Cluster(tmp_path / "cluster", names=("a",))
        said = waiting.stderr.read()
    made.close()
    assert first.startswith(f"waiting, 60 s at most: {file}: No such file or directory.")
    assert waiting.returncode == 0, said
