"""The ASGI application that answers requests for predictions."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from singa_dask.arrays import Array
from singa_dask.data.warn_once import warn_once
from singa_dask.errors import ConfigError, DataError, SingaError
from singa_dask.inference.model import EncodedRecords, Model
from singa_dask.inference.stored_records import SERVER, advised
from singa_dask.redaction import redact
from singa_dask.serving.batcher import Batcher, Limits
from singa_dask.serving.bodies import (
    JSON,
    NPY,
    PredictRequest,
    Refused,
    decompressed,
    encoding_of,
    read_body,
    to_npy,
    too_large,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

# number of threads that parse bodies and encode answers
N_READERS = 2
# smaller bodies and answers are handled on the event loop, because passing them to a thread takes longer
SMALL_BYTES = 16 << 10
BYTES_PER_VALUE = 16
# headers of an error response to a request that may succeed later
LATER = {"Retry-After": "1"}


class App:
    """Answers requests with a model's predictions.

    Predictions are computed from ``layer`` unless a request names another layer. ``threshold`` chooses the class only
    for ``layer``.

    Attributes
    ----------
    asgi : Starlette
    examples : list of dict
        Example records of a table, or of a time series; see `Model.example` and `Model.series_example`.
    ending : bool
        Whether new requests are refused.
    statuses : Counter of int
        Number of answers to requests for predictions, by status.

    Raises
    ------
    ConfigError
        The net cannot be served.
    """

    def __init__(self, model: Model, limits: Limits, layer: str | None = None, threshold: float | None = None) -> None:
        self._model, self._limits = model, limits
        self._layer = layer if layer is not None else _output_of(model)
        if layer is not None:
            self._check_layer(layer)
        self._threshold = threshold
        if threshold is not None:
            model.decoder(self._layer or model.output).check_threshold(threshold)
        self.ending = False
        self.statuses: Counter[int] = Counter()
        self._n_open = self._bytes_open = 0
        some = self._layer or next(reversed(model.layers))
        self._shape, self._columns = model.record(some)
        example = model.example(some)
        self.examples = model.series_example(some) or ([example] if example else [])
        self._reading = model.columns(some)
        self._n_history = max(len(self.examples) - 1, 0)
        if self._n_history:
            self._columns = tuple(self.examples[0])
        # the threads begin last, because the lines above may raise errors
        self.batcher = Batcher(model, limits)
        self._readers = ThreadPoolExecutor(N_READERS, thread_name_prefix="serve-reads")
        try:
            self.batcher.warm_up(model.zeros(some), some)
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
        # a redirect has no body that says what is wrong
        self.asgi.router.redirect_slashes = False

    def close(self) -> None:
        """End the threads once all submitted records are computed."""
        self.batcher.close()
        self._readers.shutdown(wait=False, cancel_futures=True)

    # -- health and description of the model -----------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        status = "ending" if self.ending else "ok"
        facts = {"status": status, "model": self._model.name, "step": self._model.step}
        return _json(facts, 503 if self.ending else 200)

    async def _describe(self, request: Request) -> Response:
        model, limits = self._model, self._limits
        facts = {
            "model": model.name,
            "url": redact(model.url),
            "step": model.step,
            "output": self._layer,
            "threshold": self._threshold,
            "layers": model.layers,
            "classes": self._classes(self._layer),
            "record": {
                "shape": self._shape or None,
                "columns": self._columns or None,
                **({"history": self._n_history} if self._n_history else {}),
                **self._reading,
            },
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
        """Return the numbers of requests, errors, records and batches so far."""
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
        """Return the answer to a request; append the request's body, once complete, to ``with_body``."""
        async with self._body(request) as body:
            with_body.append(body)
            kind = request.headers.get("content-type", "")
            is_small = len(body) < SMALL_BYTES and kind.startswith(JSON)
            encoded, asked, layer = await self._work(is_small, self._read, body, kind, dict(request.query_params))
            values = np.empty((0, *(self._model.layers[layer] or (1,))), np.float32)
            forecasts = list[Any]()
            while encoded.n:
                values = await self.batcher.values(encoded.arrays, layer, is_alone=self._n_open == 1)
                if not encoded.n_later:
                    break
                forecasts.append(self._model.decoder(layer).forecast(values))
                encoded = await self._work(False, self._encoded, asked, layer, forecasts)
            wants_npy = NPY in request.headers.get("accept", "")
            is_small = values.size * BYTES_PER_VALUE < SMALL_BYTES
            return await self._work(is_small, self._written, values, encoded, asked, layer, wants_npy)

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """Provide the body of a request, within the limits on memory for bodies."""
        limits = self._limits
        if self.ending:
            raise Refused(503, "the server is shutting down.", {"Connection": "close"})
        encoding = encoding_of(request.headers.getlist("content-encoding"))
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.max_bytes:
            raise too_large(limits)
        if self._n_open >= limits.max_queue:
            raise Refused(429, f"{self._n_open} requests are being answered. Try again later.", LATER)
        self._n_open += 1
        chunks = bytearray()
        n_bytes = 0  # this body's part of the reserved bytes
        try:
            async for chunk in request.stream():
                if len(chunks) + len(chunk) > limits.max_bytes:
                    raise too_large(limits)
                self._reserve(len(chunk))
                n_bytes += len(chunk)
                chunks += chunk
            body = bytes(chunks)
            if encoding:
                body = await self._work(False, decompressed, body, encoding, limits)
                self._reserve(len(body))
                n_bytes += len(body)
            yield body
        finally:
            self._n_open -= 1
            self._bytes_open -= n_bytes

    def _reserve(self, n_bytes: int) -> None:
        """Reserve memory for a body; raise Refused if all bodies together need too much memory."""
        if self._bytes_open + n_bytes > self._limits.max_total_bytes:
            raise Refused(429, "other requests take all the memory for bodies. Try again later.", LATER)
        self._bytes_open += n_bytes

    async def _work(self, is_small: bool, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function. It runs in another thread unless its work is small."""
        if is_small:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._readers, function, *arguments)

    def _read(self, body: bytes, kind: str, query: dict[str, str]) -> tuple[EncodedRecords, PredictRequest, str]:
        asked = read_body(body, kind, query, self._limits, self._columns)
        layer = asked.layer if asked.layer is not None else self._layer
        if layer is None:
            raise Refused(400, f"layer: expected one to predict from. Layers: {', '.join(self._model.layers)}.")
        self._check_layer(layer)
        if asked.proba and not self._model.decoder(layer).has_classes:
            raise Refused(400, f"proba: layer {layer!r} has no class probabilities.")
        n_bytes = 4 * asked.n * math.prod(self._model.layers[layer])
        if n_bytes > self._limits.max_bytes:
            most = self._limits.max_bytes / (1 << 20)
            raise Refused(413, f"an answer of {n_bytes / (1 << 20):.0f} MiB, expected at most {most:g}.")
        return self._encoded(asked, layer), asked, layer

    def _encoded(self, asked: PredictRequest, layer: str, forecasts: Sequence[Any] = ()) -> EncodedRecords:
        try:
            return self._model.encode(asked.records, layer, "records", forecasts)
        except DataError as error:
            raise advised(error, SERVER) from None

    def _check_layer(self, layer: str) -> None:
        if layer not in self._model.layers:
            known = ", ".join(self._model.layers)
            raise ConfigError(f"layer: no layer {layer[:80]!r} to predict from. Layers: {known}.")

    def _written(
        self, values: Array, encoded: EncodedRecords, asked: PredictRequest, layer: str, wants_npy: bool
    ) -> Response:
        finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
        if not finite.all():
            raise Refused(500, f"row {int(finite.argmin())}: layer {layer!r} computed a value that is not finite.")
        model, decoder = self._model, self._model.decoder(layer)
        threshold = self._threshold if layer == self._layer else None
        if wants_npy:
            if encoded.warning:
                # an array has no place for warnings
                warn_once(logger, encoded.warning)
            if asked.proba:
                return Response(to_npy(decoder.probabilities(values)), media_type=NPY)
            return Response(to_npy(decoder.predictions(values, threshold)), media_type=NPY)
        answer = {"predictions": decoder.predictions(values, threshold).tolist()}
        if n_history := asked.n - len(values):
            answer["history"] = n_history
        if classes := self._classes(layer):
            answer["classes"] = classes
        if asked.proba:
            answer["probabilities"] = decoder.probabilities(values).tolist()
        warnings = {"warnings": [encoded.warning]} if encoded.warning else {}
        return _json({**answer, **encoded.counts.to_dict(), **warnings, "step": model.step, "model": model.name})

    def _classes(self, layer: str | None) -> list[Any] | None:
        """Return the class names of a layer as JSON values; None if the layer has no named classes."""
        decoder = self._model.decoder(layer) if layer is not None else None
        return list(decoder.classes.tolist()) if decoder and decoder.has_classes and decoder.names else None


def _output_of(model: Model) -> str | None:
    """Return the layer that `Model.predict` uses; None if there are several."""
    try:
        return model.output
    except ConfigError:
        return None


def _json(facts: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return Response(text.encode("utf-8", "backslashreplace"), status, headers, JSON)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": message}, status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or method."""
    assert isinstance(error, HTTPException)
    known = "Known: POST /predict, GET /health, GET /model."
    message = f"{request.method} {request.url.path[:80]}: {error.detail}. {known}"
    return _error(error.status_code, message, dict(error.headers or {}))
