"""Files on web servers: their bytes are compared with those of a server of our own, which fails on demand."""

from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import DataError, MissingPackageError
from singa_dask.fs import range_reader, urls
from singa_dask.fs.range_reader import RangeReader

A, B = bytes(range(256)) * 400, bytes(range(255, -1, -1)) * 400
OLD, NEW = "Mon, 02 Jan 2006 15:04:05 GMT", "Mon, 02 Jan 2006 15:04:06 GMT"


class WebServer(http.server.ThreadingHTTPServer):
    """Attributes: ``data``; ``headers``, with ``%d`` for the number of answers; ``faults`` of the next GETs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data, self.headers = A, {"ETag": '"a"', "Last-Modified": OLD}
        self.faults: list[int | str] = []
        self.n_answers = 0
        self.is_over = threading.Event()

    def handle_error(self, *_: Any) -> None:
        """Say nothing: a client that does not wait any longer has closed the connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.bin"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        server, data, status = self.server, self.server.data, 200
        server.n_answers += 1
        fault = server.faults.pop(0) if server.faults and self.command == "GET" else ""
        if fault == "silent":
            server.is_over.wait()
        if isinstance(fault, int):
            data, status = b"", fault
        elif asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            data, status = data[int(first) : int(last) + 1], 206
        self.send_response(status)
        for name, value in server.headers.items():
            self.send_header(name, value.replace("%d", str(server.n_answers)))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == "cut":
            data, self.close_connection = data[: len(data) // 2], True
        if self.command == "GET":
            self.wfile.write(data)


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    monkeypatch.setattr(range_reader, "BACK_OFF_S", (0.0, 0.0, 0.0))
    with WebServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.is_over.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("faults", [[], [429], [503, 408], ["cut"], ["cut", 500, "cut"], ["silent"]], ids=str)
def test_ranges_of_a_server_that_fails_now_and_then(
    web: WebServer, faults: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "silent" in faults:
        monkeypatch.setattr(urls, "SILENT_S", 0.5)
    reader = RangeReader(web.url)
    web.faults = [*faults]
    assert bytes(reader.read(1000, 999)) == A[1000:1999] and not web.faults
    assert bytes(reader.read(0, len(A))) == A
    reader.check_unchanged()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (503, "the server answers 503 Service Unavailable"),
        (403, "the server answers 403 Forbidden"),
        (404, "no such file or directory"),
        ("cut", "data.bin: .*payload"),
        ("silent", "data.bin: .*[Tt]ime"),
    ],
)
def test_a_server_that_goes_on_failing(
    web: WebServer, fault: int | str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "silent":
        # it is waited for twice only
        monkeypatch.setattr(urls, "SILENT_S", 0.4)
        monkeypatch.setattr(range_reader, "BACK_OFF_S", (0.0,))
    reader = RangeReader(web.url)
    n_attempts = 1 + len(range_reader.BACK_OFF_S)
    web.faults = [fault] * n_attempts
    with pytest.raises(DataError, match=said) as raised:
        reader.read(0, 9)
    assert str(raised.value).startswith(web.url) and str(raised.value).count(web.url) == 1
    # what does not pass is not asked for again
    assert len(web.faults) == (n_attempts - 1 if fault in (403, 404) else 0)


@pytest.mark.parametrize(
    ("before", "after", "noticed"),
    [
        ({"ETag": '"a"'}, {"ETag": '"b"'}, True),
        ({"ETag": 'W/"a"'}, {"ETag": '"a"'}, False),  # weak in the second after a change
        ({"Last-Modified": OLD}, {"Last-Modified": NEW}, True),
        ({"ETag": '"%d"', "Last-Modified": OLD}, {}, False),
        ({"ETag": '"%d"', "Last-Modified": OLD}, {"Last-Modified": NEW}, True),
        ({"ETag": '"%d"'}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_file_that_is_replaced_by_one_of_the_same_length(
    web: WebServer, caplog: pytest.LogCaptureFixture, before: dict[str, str], after: dict[str, str], noticed: bool
) -> None:
    web.headers = before
    reader = RangeReader(web.url)
    assert ("is not noticed" in caplog.text) == (not reader.version) == (before in ({}, {"ETag": '"%d"'}))
    # several servers of one address have ETags of their own
    assert bool(reader.common_version) == ("Last-Modified" in before)
    assert bytes(reader.read(0, 9)) == A[:9]
    web.data, web.headers = B, {**before, **after}
    if noticed:
        with pytest.raises(DataError, match=r"data\.bin: the file was replaced while it was read"):
            reader.check_unchanged()
    else:
        reader.check_unchanged()
        reader.read(0, 9)
    web.data = A[1:]
    with pytest.raises(DataError, match=r"the file was replaced while it was read"):
        reader.check_unchanged()


def test_without_aiohttp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(MissingPackageError, match=r"http://nowhere/x: .*pip install 'singa-dask\[http\]'"):
        fs.exists("http://nowhere/x")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a.csv", "s3://bucket/a.csv"])
def test_an_unknown_storage_option_is_named(url: str) -> None:
    with pytest.raises(DataError, match=rf"^{url}: storage_options: this filesystem has no option 'colour'\.$"):
        fs.read_bytes(url, storage_options={"colour": "blue"})
