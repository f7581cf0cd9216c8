"""Requests that are refused: wrong ones, too large ones, too many, too slow."""

from __future__ import annotations

import gzip
import io
import json
import socket
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import singa_dask as sd
from singa_dask.serving import Limits, ModelServer, bodies
from tests.runtime.processes import wait_until
from tests.serving.conftest import TIMEOUT_S, Slow, ask, connected
from tests.serving.test_server import NPY, npy

RECORD = [[0] * 28] * 28
HUGE = npy(np.zeros((1, 28, 28))).replace(b"(1, 28, 28)", b"(9999999, 28)")

WRONG: list[tuple[int, Any, str, str]] = [
    (400, b"{", "application/json", "the body is not JSON: Expecting property name"),
    (400, b'{"records": [{"a": 1, "a": 2}]}', "application/json", "the body is not JSON: a key occurs twice"),
    (400, b"[" * 100_000, "application/json", "the body is not JSON"),
    (400, [RECORD], "application/json", "the body is not an object"),
    (400, {"records": 3}, "application/json", "records: expected a list, also for one record. Expected {"),
    (400, b"", "application/json", 'the body is empty. Expected {"records": [...]}; GET /model shows'),
    (400, b'{"records": ["K\xf6ln"]}', "application/json", "the body is not UTF-8, from byte 15 on. Send JSON in"),
    (
        400,
        {"records": [{}]},
        "application/json",
        "records, row 0: an object without values. Expected values by column name",
    ),
    (400, {"records": [RECORD], "probs": True}, "application/json", "probs: unknown key. Known: records, layer, proba"),
    (400, {"records": [RECORD], "layer": 3}, "application/json", "layer: 3, expected the name"),
    (400, {"records": [RECORD], "layer": "fc9"}, "application/json", "no layer 'fc9' to predict from. Layers: data"),
    (400, {"records": [RECORD], "layer": "\ud800"}, "application/json", "no layer '\\ud800'"),
    (400, {"records": [RECORD], "proba": "x"}, "application/json", 'proba: "x", expected true or false'),
    (400, {"records": [RECORD], "layer": "relu", "proba": True}, "application/json", "no class probabilities"),
    (400, {"records": [[1, 2]]}, "application/json", "records: records of (2,), expected (28, 28)"),
    (400, {"records": [RECORD, [1]]}, "application/json", "records: records of several shapes"),
    (400, {"records": ["a"]}, "application/json", "records: texts. Expected numbers, or pictures as bytes"),
    (
        400,
        b'{"records": [[%s]]}' % b",".join([b"1"] * 783 + [b"NaN"]),
        "application/json",
        "records, row 0[783]: nan, expected a 32-bit float",
    ),
    (
        400,
        {"records": [RECORD, [[*RECORD[0][:5], None, *RECORD[0][6:]], *RECORD[1:]]]},
        "application/json",
        "records, row 1, column 0, 5: no value (null), expected a number.",
    ),
    (413, {"records": [0] * 51}, "application/json", "records: 51, expected at most 50"),
    (413, b" " * (1 << 20) + b"1", "application/json", "the body is larger than 1 MiB"),
    (413, npy(np.zeros((51, 1))), NPY, "records: 51, expected at most 50"),
    (400, b"x", NPY, "the body is not an array as np.save writes it"),
    (400, HUGE, NPY, "the body is not an array as np.save writes it"),
    (400, npy(np.zeros((2, 28, 28)))[:-1], NPY, "12543 bytes of values, expected 12544"),
    (400, npy(np.float32(1)), NPY, "an array without axes"),
    (400, npy(np.array(["a"])), NPY, "records: values of type <U1, expected numbers"),
    (400, b"\x89PNG\r\n\x1a\n....", "image/png", "not an image, or a damaged one"),
    (
        415,
        b"records=1",
        "application/x-www-form-urlencoded",
        "For JSON, send the header Content-Type: application/json.",
    ),
]


@pytest.mark.parametrize(("status", "given", "kind", "message"), WRONG, ids=lambda value: None)
def test_wrong_requests(url: str, status: int, given: Any, kind: str, message: str) -> None:
    answer = ask(url, given=given, kind=kind)
    assert answer.status == status
    assert message in answer.json["error"]


def test_objects_of_python_are_not_loaded(url: str) -> None:
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    assert "the array is of type object" in ask(url, given=file.getvalue(), kind=NPY).json["error"]


def test_wrong_paths_and_methods(url: str) -> None:
    for path in ("/predictions", "/predict/"):
        answer = ask(url, path, {"records": [RECORD]})
        assert (answer.status, "Known: POST /predict" in answer.json["error"]) == (404, True)
    answer = ask(url, "/predict")
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert "Known: POST /predict" in answer.json["error"]
    for query in ("proba=false", "proba=maybe", "layer=fc"):
        twice = ask(url, f"/predict?{query}", {"records": [RECORD], "proba": True, "layer": "relu"})
        assert (twice.status, "in the URL, but another value in the body" in twice.json["error"]) == (400, True)
    assert ask(url, "/predict?top=3", {"records": [RECORD]}).json["error"].startswith("top: unknown parameter")


def test_a_large_body_without_its_length(url: str) -> None:
    pieces: Iterator[bytes] = (bytes(1 << 18) for _ in range(9))
    connection = connected(url)
    connection.request("POST", "/predict", pieces, {"Content-Type": NPY}, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


GZIPPED = gzip.compress(json.dumps({"records": [RECORD]}).encode(), mtime=0)


@pytest.mark.parametrize(
    ("status", "encoding", "given", "message"),
    [
        (413, "gzip", gzip.compress(b" " * (4 << 20), mtime=0), "the body is larger than 1 MiB"),
        (413, "deflate", zlib.compress(b" " * (4 << 20)), "the body is larger than 1 MiB"),
        (400, "gzip", GZIPPED[:-9], "the body ends in the middle of its gzip data"),
        (400, "gzip", b"", "the body ends in the middle of its gzip data"),
        (400, "gzip", b'{"records": []}', "the body is not gzip data"),
        (400, "gzip", GZIPPED + b"more", "4 bytes follow the gzip data of the body. Compress the body in one part."),
        (400, "gzip", GZIPPED[:-8] + bytes(8), "the body is not gzip data"),
        (400, "deflate", GZIPPED, "the body is not deflate data"),
        (415, "br", b"...", "Content-Encoding: br. Expected one of: gzip, deflate"),
        (415, "gzip, gzip", b"...", "Content-Encoding: gzip, gzip. Expected one of: gzip, deflate"),
    ],
    ids=lambda value: len(value) if isinstance(value, bytes) else None,
)
def test_compressed_bodies_that_are_refused(url: str, status: int, encoding: str, given: bytes, message: str) -> None:
    answer = ask(url, given=given, headers={"Content-Encoding": encoding})
    assert answer.status == status
    assert message in answer.json["error"]
    assert (status == 415) == (answer.headers.get("accept-encoding") == "gzip, deflate")


def test_a_large_answer(model: sd.Model) -> None:
    with ModelServer(model, Limits(4, max_bytes=2000)) as server:
        answer = ask(server.url, given=npy(np.zeros((2, 784), np.uint8)), kind=NPY)
        assert answer.status == 200
        answer = ask(server.url, "/predict?layer=data", npy(np.zeros((1, 784), np.uint8)), NPY)
        assert (answer.status, "an answer of" in answer.json["error"]) == (413, True)


def test_a_picture_of_many_pixels(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = io.BytesIO()
    Image.new("L", (50, 50)).save(picture, "PNG")
    monkeypatch.setattr(bodies, "MAX_PIXELS", 2000)
    answer = ask(url, given=picture.getvalue(), kind="image/png")
    assert (answer.status, answer.json["error"]) == (413, "the picture: 50 x 50 pixels, expected at most 2000.")


def test_too_many_requests(model: sd.Model) -> None:
    body = b'{"records": [%s]}' % (b"[" + b"0," * 783 + b"0]")
    with ModelServer(model, Limits(4, max_queue=1)) as server:
        client = Slow(server.url, body)
        answer = ask(server.url, given=body)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert ask(server.url, "/health").status == 200
        assert client.finish() == 200
        assert ask(server.url, given=body).status == 200


def test_too_many_connections(model: sd.Model) -> None:
    with ModelServer(model, Limits(4, max_connections=2)) as server:
        host, _, port = server.url.removeprefix("http://").rpartition(":")
        idle = [socket.create_connection((host, int(port)), TIMEOUT_S) for _ in range(2)]
        # the server has taken them once it answers on one
        for client in idle:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        assert ask(server.url, "/health").status == 503
        idle.pop().close()
        wait_until(lambda: ask(server.url, "/health").status == 200, "there is room again")
        idle.pop().close()


@pytest.mark.long
def test_a_slow_body(model: sd.Model) -> None:
    with ModelServer(model, Limits(4, timeout_s=0.2)) as server:
        assert Slow(server.url, b"{}").status() == 408


def test_a_batch_that_is_late(model: sd.Model) -> None:
    with ModelServer(model, Limits(64, max_wait_s=60, timeout_s=0.2)) as server:
        answer = ask(server.url, given={"records": [RECORD]})
        assert (answer.status, answer.json["error"]) == (503, "no answer within 0.2 s.")


def test_an_error_of_the_server(model: sd.Model, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    with ModelServer(model, Limits(4)) as server:
        monkeypatch.setattr(sd.Model, "compute", lambda *_: np.full((4, 10), np.nan))
        answer = ask(server.url, given={"records": [RECORD]})
        assert (answer.status, "row 0: layer 'softmaxloss' computed a value that is not" in answer.json["error"]) == (
            500,
            True,
        )
        monkeypatch.setattr(sd.Model, "compute", lambda *_: 1 // 0)
        answer = ask(server.url, given={"records": [RECORD]})
        assert answer.json["error"] == "an error inside the server; its log has the traceback."
        assert "ZeroDivisionError" in caplog.text
        monkeypatch.undo()
        assert ask(server.url, given={"records": [RECORD]}).status == 200
