"""Files that change while they are read, and servers that do not read ranges, are errors that name the file."""

from __future__ import annotations

import http.server
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.hdfs.filesystem import HdfsReader
from singa_dask.fs.range_reader import RangeReader

CHANGED = "the file was (replaced|changed) while it was read"
A, B = b"a" * 4096, b"b" * 4096


def test_a_local_file_that_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(A)
    os.utime(file, (0, 0))
    reader = RangeReader(str(file))
    assert bytes(reader.read(0, 9)) == A[:9]
    with file.open("r+b") as content:
        content.write(B)
    monkeypatch.setattr(reader, "_check_at", 0.0)
    with pytest.raises(DataError, match=f"data.bin: {CHANGED}"):
        reader.read(0, 9)


def test_a_local_file_that_is_replaced_stays_what_it_was(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(A)
    reader = RangeReader(str(file))
    fs.write_atomic(str(file), B)
    assert bytes(reader.read(0, 4096)) == A
    file.unlink()
    assert bytes(reader.read(0, 4096)) == A
    reader.close()


def test_a_remote_file_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"memory://{uuid.uuid4().hex}/data.bin"
    fs.write_atomic(url, A)
    reader = RangeReader(url)
    assert bytes(reader.read(0, 9)) == A[:9]
    fs.write_atomic(url, B)
    with pytest.raises(DataError, match=f"data.bin: {CHANGED}"):
        reader.check_unchanged()
    reader = RangeReader(url)
    monkeypatch.setattr(reader, "version", "")
    monkeypatch.setattr("singa_dask.fs.versions.VERSIONS", ())
    fs.write_atomic(url, B[1:])
    monkeypatch.setattr(reader, "_check_at", 0.0)
    with pytest.raises(DataError, match=f"data.bin: {CHANGED}"):
        reader.read(0, 9)


class Node:
    """A NameNode and a DataNode with one file, which is opened for each read."""

    root = "hdfs://nn"

    def __init__(self) -> None:
        self.modified = 1

    def ask(self, path: str, function: Any, idle_s: float) -> Any:
        return function(self)

    def get_file_info(self, path: str) -> Any:
        return SimpleNamespace(modification_time=self.modified)

    def read(self, path: str) -> Node:
        return self

    def __len__(self) -> int:
        return len(A)

    def read_idle_s(self, attempt: int) -> float:
        return 1.0

    def note_read(self, *_: float) -> bool:
        return True

    def guarded(self, path: str, offset: int, function: Any) -> Any:
        return A[offset : offset + 9]


def test_a_file_on_hdfs_that_is_replaced() -> None:
    node: Any = Node()
    reader = HdfsReader(node, "/data.bin")
    assert reader.read(0, 9) == A[:9]
    assert reader.read(9, 9) == A[:9]
    node.modified = 2
    with pytest.raises(OSError, match=f"data.bin: {CHANGED}"):
        reader.read(18, 9)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves whole files only, as Python's own server does."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    class Here(Handler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(tmp_path))

    (tmp_path / "data.bin").write_bytes(A)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Here) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


def test_a_web_server_that_reads_no_ranges(server: str) -> None:
    reader = RangeReader(f"{server}/data.bin")
    assert bytes(reader.read(0, 4096)) == A
    with pytest.raises(DataError, match=r"data.bin: the server sends whole files only"):
        reader.read(9, 9)
    with pytest.raises(DataError, match=r"data.bin: the server sends whole files only"):
        fs.read_bytes(f"{server}/data.bin", 0, 9)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("503 Busy\r\nContent-Length: 0", "data.bin: the server answers 503 Busy"),
        ("404 Not Found\r\nContent-Length: 0", "data.bin: no such file"),
        ("200 OK\r\nTransfer-Encoding: chunked", "data.bin: the server does not report the length of the file"),
    ],
)
def test_what_a_web_server_answers(head: str, said: str) -> None:
    class Answer(http.server.BaseHTTPRequestHandler):
        def handle(self) -> None:
            self.raw_requestline = self.rfile.readline()
            body = "0\r\n\r\n" if "chunked" in head and self.raw_requestline.startswith(b"GET") else ""
            self.wfile.write(f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n{body}".encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{made.server_port}/data.bin"
        with pytest.raises(DataError, match=said):
            RangeReader(url)
        if "503" in head:
            with pytest.raises(DataError, match=said):
                fs.exists(url)
        made.shutdown()


def test_a_web_server_has_directories(server: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner.bin").write_bytes(B)
    assert [fs.is_dir(f"{server}/{name}") for name in ("folder", "folder/inner.bin", "nothing")] == [True, False, False]
    assert fs.exists(f"{server}/folder")


@pytest.fixture
def asked() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a web server, which is a proxy too, and the paths that it is asked for."""
    paths = list[str]()

    class Answer(Handler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(A)))
            self.end_headers()
            self.wfile.write(A)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as made:
        threading.Thread(target=made.serve_forever, args=(0.01,)).start()
        yield f"127.0.0.1:{made.server_port}", paths
        made.shutdown()


@pytest.mark.parametrize("no_proxy", ["", "127.0.0.1"])
def test_proxies_of_the_environment(asked: Any, no_proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address, paths = asked
    monkeypatch.setenv("HTTP_PROXY", f"http://{address}")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    url = f"http://{address}/data.bin" if no_proxy else "http://elsewhere.invalid/data.bin"
    assert fs.read_bytes(url) == A
    assert paths == ["/data.bin" if no_proxy else url]


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/a%2Fb.bin?sig=x%2Fy%2B%3D", "/a%2Fb.bin?sig=x%2Fy%2B%3D"),
        ("/a b.bin?sig=x/y", "/a%20b.bin?sig=x/y"),
    ],
)
def test_escapes_of_urls_are_left_alone(asked: Any, path: str, sent: str) -> None:
    address, paths = asked
    assert fs.read_bytes(f"http://{address}{path}") == A
    assert paths == [sent]


def test_a_web_server_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError, match=r"Cannot connect|Connect call failed|refused"):
        RangeReader(f"http://127.0.0.1:{port}/data.bin")
