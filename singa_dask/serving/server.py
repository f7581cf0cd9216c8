"""ModelServer: a model at a port of this machine: its ASGI application, and bodies."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import math
import socket
import threading
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from singa_dask.arrays import Array
from singa_dask.data.stores.image_decoding import image_size
from singa_dask.data.stores.npy import NPY_DAMAGE, decode_npy
from singa_dask.errors import ConfigError, DataError, SingaError
from singa_dask.inference.model import Model
from singa_dask.redaction import redact
from singa_dask.serving.batcher import Batcher, Limits
from singa_dask.texts import unique_keys

# Bodies of requests and answers: JSON, arrays of NumPy and pictures.


class Refused(Exception):
    """A request is not answered with predictions.

    Parameters
    ----------
    status : int
        Of HTTP.
    message : str
    headers : dict of str to str, optional
    """

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


JSON, NPY = "application/json", "application/x-npy"
PICTURES = tuple(f"image/{kind}" for kind in ("png", "jpeg", "webp", "bmp", "gif", "tiff"))
OPTIONS = ("layer", "proba")
# how a body is compressed, by the value of Content-Encoding
ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "identity": "", "": ""}
# pixels of a picture: as many as Pillow accepts without a warning
MAX_PIXELS = (1 << 30) // 12


class PredictRequest(NamedTuple):
    """A request for predictions.

    Attributes
    ----------
    records : ndarray, list of bytes, or list
        As `Model.encode` takes them.
    n : int
        Number of records.
    layer : str or None
        Layer to predict from.
    proba : bool
        Whether the probabilities of classes are asked for.
    """

    records: Any
    n: int
    layer: str | None
    proba: bool


def read_body(body: bytes, content_type: str, query: Mapping[str, str], limits: Limits) -> PredictRequest:
    """Read the records of a request, and what is asked.

    Parameters
    ----------
    body : bytes
    content_type : str
    query : mapping of str to str
        Options in the URL; those of a JSON body override them.
    limits : Limits

    Raises
    ------
    Refused
        The request is wrong.
    DataError
        A picture is damaged.
    """
    kind = content_type.partition(";")[0].strip().lower()
    asked: dict[str, Any] = {key: _from_query(key, value) for key, value in query.items()}
    if kind == JSON:
        fields = _parsed(body)
        asked |= fields
        records = fields.get("records")
        if not isinstance(records, list):
            raise Refused(400, 'records: expected a list, as in {"records": [[0.5, 1], [2, 3]]}.')
        # before they become arrays, which takes memory
        n = _checked(len(records), limits)
    elif kind == NPY:
        records = _npy(body)
        n = _checked(len(records), limits)
    elif kind in PICTURES:
        records, n = [_picture(body)], 1
    else:
        known = ", ".join((JSON, NPY, *PICTURES))
        raise Refused(415, f"Content-Type: {kind or 'none'}. Expected one of: {known}.")
    layer, proba = asked.get("layer"), asked.get("proba", False)
    if not isinstance(layer, str | None):
        raise Refused(400, f"layer: {json.dumps(layer)[:40]}, expected the name of a layer.")
    if not isinstance(proba, bool):
        raise Refused(400, f"proba: {json.dumps(proba)[:40]}, expected true or false.")
    return PredictRequest(records, n, layer, proba)


def _encoding(values: Sequence[str]) -> str:
    """Return how a body is compressed, by the values of its Content-Encoding; empty if it is not."""
    encoding = ENCODINGS.get(", ".join(values).strip().lower())
    if encoding is None:
        known = "gzip, deflate"
        message = f"Content-Encoding: {', '.join(values)[:80]}. Expected one of: {known}."
        raise Refused(415, message, {"Accept-Encoding": known})
    return encoding


def _decompressed(body: bytes, encoding: str, limits: Limits) -> bytes:
    """Decompress a body, up to the limit on the size of bodies."""
    wbits = zlib.MAX_WBITS + 16
    if encoding == "deflate":
        header = int.from_bytes(body[:2], "big")  # some clients omit the header of zlib
        wbits = zlib.MAX_WBITS if (header >> 8) & 15 == 8 and header % 31 == 0 else -zlib.MAX_WBITS
    decompressor = zlib.decompressobj(wbits)
    try:
        plain = decompressor.decompress(body, limits.max_bytes + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not {encoding} data: {error}.") from None
    if len(plain) > limits.max_bytes:
        raise _too_large(limits)
    if not decompressor.eof:
        raise Refused(400, f"the body ends in the middle of its {encoding} data.")
    if n_more := len(decompressor.unused_data):
        raise Refused(400, f"{n_more} bytes follow the {encoding} data of the body. Compress the body in one part.")
    return plain


def _from_query(key: str, value: str) -> Any:
    if key not in OPTIONS:
        raise Refused(400, f"{key}: unknown parameter of the URL. Known: {', '.join(OPTIONS)}.")
    return {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value) if key == "proba" else value


def _checked(n: int, limits: Limits) -> int:
    if not n:
        raise Refused(400, "records: none. Expected one or more.")
    if n > limits.max_records:
        raise Refused(413, f"records: {n}, expected at most {limits.max_records} a request.")
    return n


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise Refused(400, 'the body is not an object. Expected {"records": [...]}.')
    known = ("records", *OPTIONS)
    unknown = next((key for key in fields if key not in known), None)
    if unknown is not None:
        raise Refused(400, f"{unknown[:40]}: unknown key. Known: {', '.join(known)}.")
    return fields


def _npy(body: bytes) -> Array:
    """Return the array of a file of NumPy, which is not copied."""
    try:
        array = decode_npy(body)
        if not array.ndim:
            raise ValueError("an array without axes, expected records along the first one")
    except NPY_DAMAGE as error:
        raise Refused(400, f"the body is not an array as np.save writes it: {error}.") from None
    return array


def _picture(body: bytes) -> bytes:
    _, height, width = image_size(body, "the picture")
    if height * width > MAX_PIXELS:
        raise Refused(413, f"the picture: {width} x {height} pixels, expected at most {MAX_PIXELS}.")
    return body


def to_npy(values: Array) -> bytes:
    """Return an array of numbers or names as ``np.save`` writes it."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


T = TypeVar("T")

logger = logging.getLogger(__name__)

# threads that read bodies and write answers, beside the event loop and the thread that computes
N_READERS = 2
# a body or an answer of fewer bytes is read and written on the event loop: to hand it on takes longer
SMALL_BYTES = 16 << 10
BYTES_PER_VALUE = 16
# headers of an answer to a request that may succeed later
LATER = {"Retry-After": "1"}


class App:
    """Answers requests with what a model predicts.

    Parameters
    ----------
    model : Model
    limits : Limits
    layer : str or None
        Layer to predict from, of requests that name none.

    Attributes
    ----------
    asgi : Starlette
    example : dict or None
        A record of a table, see `Model.example`.
    ending : bool
        New requests are refused.
    statuses : Counter of int
        Answers to requests for predictions, by status.

    Raises
    ------
    ConfigError
        The net cannot be served.
    """

    def __init__(self, model: Model, limits: Limits, layer: str | None = None) -> None:
        self._model, self._limits = model, limits
        self._layer = layer if layer is not None else _output_of(model)
        if layer is not None:
            self._check_layer(layer)
        self.batcher = Batcher(model, limits)
        self.ending = False
        self.statuses: Counter[int] = Counter()
        self._n_open = self._bytes_open = 0
        self._readers = ThreadPoolExecutor(N_READERS, thread_name_prefix="serve-reads")
        some = self._layer or next(reversed(model.layers))
        self._shape, self._columns = model.record(some)
        self.example = model.example(some)
        zeros = np.zeros((1, *self._shape), np.uint8)
        try:
            self.batcher.warm_up(model.encode(zeros, some), some)
        except BaseException:
            self.close()
            raise
        self.asgi = Starlette(
            routes=[
                Route("/predict", self._predict, methods=["POST"]),
                Route("/health", self._health),
                Route("/model", self._describe),
            ],
            exception_handlers={HTTPException: _http_error},
        )

    def close(self) -> None:
        """End the threads once what was submitted is computed."""
        self.batcher.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    # -- what it is ------------------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        status = "ending" if self.ending else "ok"
        facts = {"status": status, "model": self._model.name, "step": self._model.step}
        return _json(facts, 503 if self.ending else 200)

    async def _describe(self, request: Request) -> Response:
        model, limits = self._model, self._limits
        classes = model.class_names_of(self._layer) if self._layer and model.has_classes(self._layer) else ()
        facts = {
            "model": model.name,
            "url": redact(model.url),
            "step": model.step,
            "output": self._layer,
            "layers": model.layers,
            "classes": classes or None,
            "record": {"shape": self._shape, "columns": self._columns or None},
            "limits": {
                "max_batch": limits.max_batch,
                "max_queue": limits.max_queue,
                "max_records": limits.max_records,
                "max_mb": limits.max_bytes / (1 << 20),
                "timeout": limits.timeout_s,
            },
            "counts": self.counts(),
        }
        return _json(facts)

    def counts(self) -> dict[str, int]:
        """Return what was done so far: requests, those that failed, records and batches."""
        return {
            "requests": sum(self.statuses.values()),
            "errors": sum(n for status, n in self.statuses.items() if status >= 400),
            "records": self.batcher.n_records,
            "batches": self.batcher.n_batches,
        }

    # -- predictions -----------------------------------------------------------------------------------------

    async def _predict(self, request: Request) -> Response:
        answer = await self._answered(request)
        self.statuses[answer.status_code] += 1
        return answer

    async def _answered(self, request: Request) -> Response:
        try:
            with_body: list[bytes] = []
            try:
                return await asyncio.wait_for(self._found(request, with_body), self._limits.timeout_s)
            except asyncio.TimeoutError:
                if with_body:
                    raise Refused(503, f"no answer within {self._limits.timeout_s:g} s.", LATER) from None
                late = f"the body did not arrive within {self._limits.timeout_s:g} s."
                raise Refused(408, late, {"Connection": "close"}) from None
        except Refused as refused:
            return _error(refused.status, str(refused), refused.headers)
        except ClientDisconnect:
            return _error(400, "the client has left.")
        except (DataError, ConfigError) as error:
            return _error(400, redact(str(error)))
        except (SingaError, MemoryError) as error:
            return _error(500, redact(str(error)) or "out of memory.")
        except Exception:
            logger.exception("a request failed")
            return _error(500, "an error inside the server; its log has the traceback.")

    async def _found(self, request: Request, with_body: list[bytes]) -> Response:
        """Return the answer to a request; ``with_body`` gets its body when all of it is there."""
        async with self._body(request) as body:
            with_body.append(body)
            kind = request.headers.get("content-type", "")
            is_small = len(body) < SMALL_BYTES and kind.startswith(JSON)
            arrays, asked, layer = await self._work(is_small, self._read, body, kind, dict(request.query_params))
            values = await self.batcher.values(arrays, layer)
            wants_npy = NPY in request.headers.get("accept", "")
            is_small = values.size * BYTES_PER_VALUE < SMALL_BYTES
            return await self._work(is_small, self._written, values, asked, layer, wants_npy)

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """Give the body of a request, within the limits on bodies that are in memory."""
        limits = self._limits
        if self.ending:
            raise Refused(503, "the server is ending.", {"Connection": "close"})
        encoding = _encoding(request.headers.getlist("content-encoding"))
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.max_bytes:
            raise _too_large(limits)
        if self._n_open >= limits.max_queue:
            raise Refused(429, f"{self._n_open} requests are being answered. Try again later.", LATER)
        self._n_open += 1
        chunks = bytearray()
        n_bytes = 0  # of what is in memory
        try:
            async for chunk in request.stream():
                if len(chunks) + len(chunk) > limits.max_bytes:
                    raise _too_large(limits)
                self._reserve(len(chunk))
                n_bytes += len(chunk)
                chunks += chunk
            body = bytes(chunks)
            if encoding:
                body = await self._work(False, _decompressed, body, encoding, limits)
                self._reserve(len(body))
                n_bytes += len(body)
            yield body
        finally:
            self._n_open -= 1
            self._bytes_open -= n_bytes

    def _reserve(self, n_bytes: int) -> None:
        """Count bytes of a body that is in memory.

        Raises
        ------
        Refused
            All bodies together have too many.
        """
        if self._bytes_open + n_bytes > self._limits.max_total_bytes:
            raise Refused(429, "other requests take all the memory for bodies. Try again later.", LATER)
        self._bytes_open += n_bytes

    async def _work(self, is_small: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function, in another thread unless it has little to do."""
        if is_small:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)

    def _read(self, body: bytes, kind: str, query: dict[str, str]) -> tuple[Any, PredictRequest, str]:
        asked = read_body(body, kind, query, self._limits)
        layer = asked.layer if asked.layer is not None else self._layer
        if layer is None:
            raise Refused(400, f"layer: expected one to predict from. Layers: {', '.join(self._model.layers)}.")
        self._check_layer(layer)
        if asked.proba and not self._model.has_classes(layer):
            raise Refused(400, f"proba: layer {layer!r} has no probabilities of classes.")
        n_bytes = 4 * asked.n * math.prod(self._model.layers[layer])
        if n_bytes > self._limits.max_bytes:
            most = self._limits.max_bytes / (1 << 20)
            raise Refused(413, f"an answer of {n_bytes / (1 << 20):.0f} MiB, expected at most {most:g}.")
        return self._model.encode(asked.records, layer, "records"), asked, layer

    def _check_layer(self, layer: str) -> None:
        if layer not in self._model.layers:
            known = ", ".join(self._model.layers)
            raise ConfigError(f"layer: no layer {layer[:80]!r} to predict from. Layers: {known}.")

    def _written(self, values: Array, asked: PredictRequest, layer: str, wants_npy: bool) -> Response:
        finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
        if not finite.all():
            raise Refused(500, f"row {int(finite.argmin())}: layer {layer!r} computed a value that is not finite.")
        model = self._model
        if wants_npy:
            predictions = model.probabilities_of(values, layer) if asked.proba else model.predictions_of(values, layer)
            return Response(to_npy(predictions), media_type=NPY)
        answer = {"predictions": model.predictions_of(values, layer).tolist()}
        if n_history := asked.n - len(values):
            answer["history"] = n_history
        if model.has_classes(layer) and (classes := model.class_names_of(layer)):
            answer["classes"] = classes
        if asked.proba:
            answer["probabilities"] = model.probabilities_of(values, layer).tolist()
        return _json({**answer, "step": model.step, "model": model.name})


def _output_of(model: Model) -> str | None:
    """Return the layer that `Model.predict` takes; None if there are several."""
    try:
        return model.output
    except ConfigError:
        return None


def _too_large(limits: Limits) -> Refused:
    return Refused(413, f"the body is larger than {limits.max_bytes / (1 << 20):g} MiB.")


def _json(facts: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, JSON)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": message}, status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Return the error of a path or a method that is not there."""
    assert isinstance(error, HTTPException)
    known = "Known: POST /predict, GET /health, GET /model."
    message = f"{request.method} {request.url.path[:80]}: {error.detail}. {known}"
    return _error(error.status_code, message, dict(error.headers or {}))


BACKLOG = 2048
# the loop of uvicorn looks so often whether it is to end; twice as long it may take besides requests
ENDS_WITHIN_S = 2.0

# to a client whose connection is one too many
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ModelServer:
    """Serves a model, by threads of its own, from `start` until `stop`.

    Parameters
    ----------
    model : Model
    limits : Limits
    host : str
    port : int
        0 for any that is free.
    layer : str, optional
        Layer to predict from, of requests that name none.

    Attributes
    ----------
    url : str
        Where it answers.
    app : App

    Raises
    ------
    ConfigError
        The port cannot be had, or the net cannot be served.
    """

    def __init__(
        self, model: Model, limits: Limits, host: str = "127.0.0.1", port: int = 0, layer: str | None = None
    ) -> None:
        self._socket = _listen(host, port)
        try:
            self.app = App(model, limits, layer)
        except BaseException:
            self._socket.close()
            raise
        name = f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self._socket.getsockname()[1]}"
        self._timeout_s = limits.timeout_s
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app.asgi,
                http=_watched(limits.timeout_s, limits.max_connections),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(limits.timeout_s) + 1,
            )
        )
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="serve-http", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Refuse new requests, and end when those that have arrived are answered. Does not wait for it."""
        self.app.ending = True
        self._server.should_exit = True

    def wait(self) -> None:
        """Wait until the server has ended.

        Raises
        ------
        Exception
            What ended it, if it was not `stop`.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> ModelServer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self.wait()

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        except BaseException as error:
            self._error = error
        finally:
            self._socket.close()
            self.app.close()
            self.app.batcher.join(self._timeout_s + ENDS_WITHIN_S)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        # create_server adds the address
        text = str(error.strerror or error).partition(" (while")[0]
        hint = "Choose another --port, or 0 for any that is free."
        raise ConfigError(f"{host}:{port}: cannot listen there: {text}. {hint}") from None
    # connections inherit it; without it the body of an answer waits 40 ms until its head is acknowledged
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _watched(timeout_s: float, max_connections: int) -> type[asyncio.Protocol]:
    """Return the protocol of uvicorn, which closes connections that are too many, or whose client is too slow.

    A client has ``timeout_s`` to begin a request, and as long for its head; for the body the application has a limit.
    Then it has as long to read the answer.
    """

    class Watched(H11Protocol):
        _timer: asyncio.TimerHandle | None = None
        _last: object = None
        _n_equal = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                transport.write(TOO_MANY)
                transport.close()
            self._timer = self.loop.call_later(timeout_s, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if self._timer is not None:
                self._timer.cancel()

        def _look(self) -> None:
            """Close the connection if it has had the same request, or none, for too long."""
            self._n_equal = self._n_equal + 1 if self.cycle is self._last else 0
            self._last = self.cycle
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if self._n_equal > is_answering:
                self.transport.abort()
            else:
                self._timer = self.loop.call_later(timeout_s, self._look)

    return Watched
