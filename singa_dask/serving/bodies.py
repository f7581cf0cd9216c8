"""Bodies of requests and answers: JSON, arrays of NumPy, pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.image import image_size
from singa_dask.data.stores.npy import NPY_DAMAGE, decode_npy
from singa_dask.errors import DataError
from singa_dask.serving.limits import Limits, Refused

JSON, NPY = "application/json", "application/x-npy"
PICTURES = tuple(f"image/{kind}" for kind in ("png", "jpeg", "webp", "bmp", "gif", "tiff"))
OPTIONS = ("layer", "proba")
# pixels of a picture: as many as Pillow accepts without a warning
MAX_PIXELS = (1 << 30) // 12


@dataclass(frozen=True)
class Asked:
    """A request for predictions.

    Attributes
    ----------
    records : ndarray, Table, list of bytes, or list
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


def read_body(body: bytes, content_type: str, query: Mapping[str, str], limits: Limits) -> Asked:
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
        given = _json(body)
        asked |= given
        records = given.get("records")
        if not isinstance(records, list):
            raise Refused(400, 'records: expected a list, as in {"records": [[0.5, 1], [2, 3]]}.')
        # before they become arrays, which takes memory
        n = _checked(len(records), limits)
        records = _table(records) if isinstance(records[0], dict) else records
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
    return Asked(records, n, layer, proba)


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


def _json(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise Refused(400, 'the body is not an object. Expected {"records": [...]}.')
    known = ("records", *OPTIONS)
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:
        raise Refused(400, f"{unknown[:40]}: unknown key. Known: {', '.join(known)}.")
    return given


def _table(records: list[Any]) -> pa.Table:
    """Return objects with the same keys as a table."""
    names = records[0].keys()
    for row, record in enumerate(records):
        if not isinstance(record, dict):
            raise Refused(400, f"records, row {row}: not an object, as the first one is.")
        # a wrong name must not become a missing value
        if record.keys() != names:
            name = min(record.keys() ^ names)
            found = "a key that the first object lacks" if name in record else "lacks this key of the first object"
            raise Refused(400, f"records, row {row}, {name[:40]!r}: {found}. Say null for a missing value.")
    columns: dict[str, pa.Array] = {}
    for name in names:
        try:
            columns[name] = pa.array([record[name] for record in records])
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise Refused(400, f"records, column {name!r}: values of several types: {error}.") from None
    return pa.table(columns)


def _npy(body: bytes) -> Array:
    """Return the array of a file of NumPy, which is not copied."""
    try:
        found = decode_npy(body)
        if not found.ndim:
            raise ValueError("an array without axes, expected records along the first one")
    except NPY_DAMAGE as error:
        raise Refused(400, f"the body is not an array as np.save writes it: {error}.") from None
    return found


def _picture(body: bytes) -> bytes:
    _, height, width = image_size(body, "the picture")
    if height * width > MAX_PIXELS:
        raise Refused(413, f"the picture: {width} x {height} pixels, expected at most {MAX_PIXELS}.")
    return body


def to_npy(values: Array) -> bytes:
    """Return an array as ``np.save`` writes it.

    Raises
    ------
    DataError
        It has objects.
    """
    file = io.BytesIO()
    try:
        np.save(file, values, allow_pickle=False)
    except ValueError as error:
        raise DataError(f"the answer: {error}.") from None
    return file.getvalue()
