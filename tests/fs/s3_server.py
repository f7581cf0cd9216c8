"""A server that speaks as much of S3 as s3fs asks for: objects of one bucket in memory, with faults on demand."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape


class S3Server(http.server.ThreadingHTTPServer):
    """Attributes: ``objects`` by key, and ``faults``, answers (status, code) to the next GETs of objects."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.faults: list[tuple[int, str]] = []
        self.created: list[str] = []
        self.has_conditions = True
        # a later server on this port is another to s3fs
        self.secret = uuid.uuid4().hex

    @property
    def options(self) -> dict[str, Any]:
        """Options of s3fs."""
        url = f"http://127.0.0.1:{self.server_port}"
        return {"key": "any", "secret": self.secret, "endpoint_url": url, "skip_instance_cache": False}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: S3Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _ask(self) -> tuple[str, str, dict[str, str]]:
        parts = urllib.parse.urlsplit(self.path)
        bucket, _, key = urllib.parse.unquote(parts.path).lstrip("/").partition("/")
        return bucket, key, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        bucket, key, query = self._ask()
        if bucket != "lab":
            self._error(404, "NoSuchBucket")
        elif not key:
            self._list(query.get("prefix", ""), query.get("delimiter", ""))
        elif self.command == "GET" and self.server.faults:
            self._error(*self.server.faults.pop(0))
        elif (data := self.server.objects.get(key)) is None:
            self._error(404, "NoSuchKey")
        else:
            status, n = 200, len(data)
            headers = {"ETag": _etag(data), "Last_Modified": "Mon, 02 Jan 2006 15:04:05 GMT"}
            if asked := self.headers.get("Range"):
                first, _, last = asked.removeprefix("bytes=").partition("-")
                stop = min(int(last or n - 1) + 1, n)
                status, data = 206, data[int(first) : stop]
                headers["Content_Range"] = f"bytes {first}-{stop - 1}/{n}"
            if self.command == "HEAD":
                data = bytes(n)
            self._answer(status, data, **headers)

    def _list(self, prefix: str, delimiter: str) -> None:
        found, folders = "", set()
        for key, data in sorted(self.server.objects.items()):
            head, slash, _ = key.removeprefix(prefix).partition("/")
            if key.startswith(prefix) and delimiter and slash:
                folders.add(f"{prefix}{head}/")
            elif key.startswith(prefix):
                # more precise than the answer to HEAD, as of MinIO
                times = "<LastModified>2006-01-02T15:04:05.678Z</LastModified>"
                size = f"<Size>{len(data)}</Size><ETag>{escape(_etag(data))}</ETag>"
                found += f"<Contents><Key>{escape(key)}</Key>{times}{size}</Contents>"
        found += "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders)
        )
        count = found.count("<Key>") + len(folders)
        content = f"<KeyCount>{count}</KeyCount><IsTruncated>false</IsTruncated>{found}"
        self._answer(200, f"<ListBucketResult>{content}</ListBucketResult>".encode(), Content_Type="application/xml")

    def do_PUT(self) -> None:
        bucket, key, _ = self._ask()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not key:
            self.server.created.append(bucket)
            self._answer(200)
        elif bucket != "lab":
            self._error(404, "NoSuchBucket")
        elif source := self.headers.get("x-amz-copy-source"):
            data = self.server.objects[urllib.parse.unquote(source).lstrip("/").partition("/")[2]]
            self.server.objects[key] = data
            self._answer(200, f"<CopyObjectResult><ETag>{escape(_etag(data))}</ETag></CopyObjectResult>".encode())
        elif not self.server.has_conditions and {"If-Match", "If-None-Match"} & set(self.headers):
            self._error(501, "NotImplemented")
        elif self.headers.get("If-None-Match") and key in self.server.objects:
            self._error(412, "PreconditionFailed")
        elif (etag := self.headers.get("If-Match")) and etag != _etag(self.server.objects.get(key, b"")):
            self._error(412, "PreconditionFailed")
        else:
            if "aws-chunked" in self.headers.get("Content-Encoding", ""):
                body = _dechunked(body)
            self.server.objects[key] = body
            self._answer(200, ETag=_etag(body))

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._ask()[1], None)
        self._answer(204)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        for part in body.split("<Key>")[1:]:
            self.server.objects.pop(part.partition("</Key>")[0], None)
        self._answer(200, b"<DeleteResult></DeleteResult>")


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _dechunked(body: bytes) -> bytes:
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        n = int(size.split(b";")[0], 16)
        if not n:
            break
        data, body = data + body[:n], body[n + 2 :]
    return data


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server."""
    with S3Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
