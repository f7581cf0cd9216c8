"""``serve``: the command, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from singa_dask.cli.serve import is_loopback
from tests.cli.conftest import Call
from tests.selection import mostly_soak
from tests.serving.conftest import TIMEOUT_S, Slow, ask, digits_run

__all__ = ["digits_run"]

BODY = b'{"records": [%s]}' % (b"[" + b"0," * 783 + b"0]")


def test_without_the_extra(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = call("serve", "nowhere")
    assert result.exit_code == 2
    assert "serve: the package uvicorn cannot be imported" in result.stderr
    assert "pip install 'singa-dask[serve]'" in result.stderr


def test_what_cannot_be_served(call: Call, digits_run: str, tmp_path: Path) -> None:
    assert "no run is here" in call("serve", tmp_path).stderr
    result = call("serve", digits_run, "--step", 7)
    assert (result.exit_code, "no checkpoint of step 7. Steps: 6." in result.stderr) == (1, True)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = call("serve", digits_run, "--port", port)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"127.0.0.1:{port}: cannot listen there: Address already in use. Choose another")


def test_which_hosts_others_reach() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "0.0.0.0", "10.0.0.1")] == [
        True,
        True,
        True,
        False,
        False,
    ]


@pytest.mark.long
@pytest.mark.parametrize("number", mostly_soak([signal.SIGTERM, signal.SIGUSR1, signal.SIGINT], 2))
def test_a_signal_ends_it_when_all_is_answered(digits_run: str, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "singa_dask", "serve", digits_run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            start, _, url = process.stdout.readline().strip().rpartition(": ")
            assert start == "tiny, step 6"
            assert ask(url, given=BODY).status == 200
            clients = [Slow(url, BODY) for _ in range(8)]
            process.send_signal(number)
            assert process.stderr.readline() == f"{number.name}: shutting down.\n"
            assert [client.finish() for client in clients] == [200] * 8
            assert process.wait(TIMEOUT_S) == 0
            assert process.stderr.read().startswith("9 requests, 0 errors; 9 records in ")
        finally:
            process.kill()


@pytest.mark.long
def test_a_second_signal_ends_it_at_once(digits_run: str) -> None:
    command = [sys.executable, "-m", "singa_dask", "serve", digits_run, "--port", "0", "--host", "0.0.0.0"]
    command += ["--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            assert process.stderr.readline().startswith("warning: others may reach 0.0.0.0")
            url = process.stdout.readline().strip().rpartition(": ")[2].replace("0.0.0.0", "127.0.0.1")
            client = Slow(url, BODY)
            process.terminate()
            assert process.stderr.readline() == "SIGTERM: shutting down.\n"
            process.terminate()
            assert process.wait(TIMEOUT_S) == 143
            client.socket.close()
        finally:
            process.kill()
