"""Parse request bodies and encode answers: JSON, NumPy arrays and pictures."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask.arrays import Array
from singa_dask.data.stores.arrays.npy import NPY_DAMAGE, decode_npy
from singa_dask.data.stores.images.image_decoding import image_size
from singa_dask.serving.batcher import Limits
from singa_dask.texts import unique_keys


class Refused(Exception):
    """Raised to refuse a request with an HTTP status, a message and headers."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


JSON, NPY = "application/json", "application/x-npy"
PICTURES = tuple(f"image/{kind}" for kind in ("png", "jpeg", "webp", "bmp", "gif", "tiff"))
OPTIONS = ("layer", "proba")
EXPECTED = 'Expected {"records": [...]}; GET /model shows what a record is.'
# value of the header Content-Encoding -> name of the compression
ENCODINGS = {"gzip": "gzip", "x-gzip": "gzip", "deflate": "deflate", "identity": "", "": ""}
# maximum number of pixels of an image that Pillow accepts without a warning
MAX_PIXELS = (1 << 30) // 12


class PredictRequest(NamedTuple):
    """A request for predictions of ``n`` records, or for class probabilities if ``proba`` is true.

    The records have a form that `Model.encode` accepts.
    """

    records: Any
    n: int
    layer: str | None
    proba: bool


def read_body(
    body: bytes, content_type: str, query: Mapping[str, str], limits: Limits, columns: Collection[str] = ()
) -> PredictRequest:
    """Parse the body and the options of a request.

    Options are in the ``query`` of the URL, or in a JSON body. If records are rows of a table with ``columns``, the
    JSON body may also be one record, or a list of records.

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
        fields = _parsed(body, columns)
        for key in asked:
            if key in fields and fields[key] != asked[key]:
                raise Refused(
                    400, f"{key}: {query[key][:40]!r} in the URL, but another value in the body. Set it once."
                )
        asked |= fields
        records = fields.get("records")
        if not isinstance(records, list):
            raise Refused(400, f"records: expected a list, also for one record. {EXPECTED}")
        # check the number of records before arrays take memory
        n = _checked(len(records), limits)
    elif kind == NPY:
        records = _npy(body)
        n = _checked(len(records), limits)
    elif kind in PICTURES:
        records, n = [_picture(body)], 1
    else:
        known = ", ".join((JSON, NPY, *PICTURES))
        hint = " For JSON, send the header Content-Type: application/json."
        raise Refused(415, f"Content-Type: {kind or 'none'}. Expected one of: {known}.{hint}")
    layer, proba = asked.get("layer"), asked.get("proba", False)
    if not isinstance(layer, str | None):
        raise Refused(400, f"layer: {json.dumps(layer)[:40]}, expected the name of a layer.")
    if not isinstance(proba, bool):
        raise Refused(400, f"proba: {json.dumps(proba)[:40]}, expected true or false.")
    return PredictRequest(records, n, layer, proba)


def encoding_of(values: Sequence[str]) -> str:
    """Return the compression of a body from the values of its Content-Encoding; empty if it has none."""
    encoding = ENCODINGS.get(", ".join(values).strip().lower())
    if encoding is None:
        known = "gzip, deflate"
        message = f"Content-Encoding: {', '.join(values)[:80]}. Expected one of: {known}."
        raise Refused(415, message, {"Accept-Encoding": known})
    return encoding


def decompressed(body: bytes, encoding: str, limits: Limits) -> bytes:
    """Decompress a body, up to the limit on its size."""
    wbits = zlib.MAX_WBITS + 16
    if encoding == "deflate":
        header = int.from_bytes(body[:2], "big")  # some clients omit the zlib header
        wbits = zlib.MAX_WBITS if (header >> 8) & 15 == 8 and header % 31 == 0 else -zlib.MAX_WBITS
    decompressor = zlib.decompressobj(wbits)
    try:
        plain = decompressor.decompress(body, limits.max_bytes + 1)
    except zlib.error as error:
        raise Refused(400, f"the body is not {encoding} data: {error}.") from None
    if len(plain) > limits.max_bytes:
        raise too_large(limits)
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
    if n > limits.max_records:
        raise Refused(413, f"records: {n}, expected at most {limits.max_records} a request.")
    return n


def _parsed(body: bytes, columns: Collection[str]) -> dict[str, Any]:
    if not body.strip():
        raise Refused(400, f"the body is empty. {EXPECTED}")
    try:
        fields = json.loads(body, object_pairs_hook=unique_keys)
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8, from byte {error.start} on. Send JSON in UTF-8.") from None
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}. {EXPECTED}") from None
    is_list = isinstance(fields, list) and (not fields or columns)
    if is_list and all(isinstance(each, dict) for each in fields):
        return {"records": fields}
    if isinstance(fields, dict) and not fields.keys() & {"records", *OPTIONS} and fields.keys() & {*columns}:
        return {"records": [fields]}
    if not isinstance(fields, dict):
        raise Refused(400, f"the body is not an object. {EXPECTED}")
    known = ("records", *OPTIONS)
    unknown = next((key for key in fields if key not in known), None)
    if unknown is not None:
        raise Refused(400, f"{unknown[:40]}: unknown key. Known: {', '.join(known)}. {EXPECTED}")
    return fields


def _npy(body: bytes) -> Array:
    """Return the array of an npy file, without a copy."""
    try:
        array = decode_npy(body)
        if not array.ndim:
            raise ValueError("an array without axes, expected one whose first axis has the records")
    except NPY_DAMAGE as error:
        raise Refused(400, f"the body is not an array as np.save writes it: {error}.") from None
    return array


def _picture(body: bytes) -> bytes:
    _, height, width = image_size(body, "the picture")
    if height * width > MAX_PIXELS:
        raise Refused(413, f"the picture: {width} x {height} pixels, expected at most {MAX_PIXELS}.")
    return body


def to_npy(values: Array) -> bytes:
    """Encode an array of numbers or names as ``np.save`` does."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()


def too_large(limits: Limits) -> Refused:
    """Return the error for a body that is too large."""
    return Refused(413, f"the body is larger than {limits.max_bytes / (1 << 20):g} MiB.")
