"""A net of the digits, served."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import singa_dask as sd
from singa_dask.data.stores import open_store
from singa_dask.serving import Limits, ModelServer
from tests.jobs.conftest import DIGITS, KEYS, digits_net

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connected(url: str) -> http.client.HTTPConnection:
    """Return a connection, whose reads end."""
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=TIMEOUT_S)


def ask(url: str, path: str = "/predict", given: Any = None, kind: str = "application/json", **more: Any) -> Answer:
    """Send a request, with JSON or bytes, and return the answer."""
    connection = connected(url)
    body = given if given is None or isinstance(given, bytes) else json.dumps(given).encode()
    headers = {**({"Content-Type": kind} if body is not None else {}), **more.pop("headers", {})}
    try:
        connection.request(more.pop("method", "GET" if body is None else "POST"), path, body, headers, **more)
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


class Slow:
    """A client that sends the head of a request, and its body when it is told to."""

    def __init__(self, url: str, body: bytes) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._body = body
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.sendall(
            b"POST /predict HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)
        )
        # the server says so when it waits for the body
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            said += self.socket.recv(1)
        assert said.startswith(b"HTTP/1.1 100 ")

    def finish(self) -> int:
        """Send the body, and return the status of the answer."""
        self.socket.sendall(self._body)
        return self.status()

    def status(self) -> int:
        """Return the status of the answer."""
        answer = http.client.HTTPResponse(self.socket)
        answer.begin()
        answer.read()
        self.socket.close()
        return answer.status


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a run on the digits."""
    url = tmp_path_factory.mktemp("served") / "run"
    sd.train(sd.Job(digits_net(), train_steps=6, threads=1, **KEYS), run_dir=str(url), progress=False)
    return str(url)


@pytest.fixture(scope="session")
def model(digits_run: str) -> sd.Model:
    return sd.load_model(digits_run)


@pytest.fixture(scope="session")
def digits() -> Any:
    """Return pixels of digits."""
    with open_store(str(DIGITS)) as store:
        return np.concatenate([store.read_block(block.id)["pixel"] for block in store.blocks])


@pytest.fixture(scope="module")
def url(model: sd.Model) -> Iterator[str]:
    """Return the URL of a server."""
    with ModelServer(model, Limits(16, max_records=50, max_bytes=1 << 20)) as server:
        yield server.url
