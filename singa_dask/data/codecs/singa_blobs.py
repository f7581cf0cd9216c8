"""The checkpoint files of SINGA: named params in BlobProtos."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_dask.data.codecs.protobuf import VARINT, MessageField, columns, integers
from singa_dask.errors import CheckpointError


@dataclass(frozen=True)
class StoredParam:
    """A param in a checkpoint of SINGA.

    Attributes
    ----------
    values : ndarray, float32
    version : int
        Number of updates of the values so far.
    """

    values: np.ndarray[Any, np.dtype[np.float32]]
    version: int


def plain_param_name(name: str) -> str:
    """Return the name of a param without SINGA's prefix ``0#``."""
    return name.removeprefix("0#")


def read_blobprotos(content: bytes, where: str = "checkpoint") -> dict[str, StoredParam]:
    """Read a checkpoint file of SINGA.

    Parameters
    ----------
    content : bytes
    where : str
        URL of the file, for errors.

    Returns
    -------
    dict of str to StoredParam
        Params by their names in the file, in file order; see `plain_param_name`.

    Raises
    ------
    CheckpointError
        The file is damaged, or has another format.
    """
    try:
        fields = _fields(content)
        versions = integers(fields, 3) or []
        names = [str(value, "utf-8") for value in _bytes(fields, 4)]
        blobs = [_read_blob(value) for value in _bytes(fields, 5)]
    except ValueError as error:
        raise CheckpointError(f"{where}: not a checkpoint of SINGA (BlobProtos), or a damaged one: {error}.") from error
    if not names or len(names) != len(blobs) or len(versions) not in (0, len(names)):
        raise CheckpointError(
            f"{where}: not a checkpoint of SINGA (BlobProtos): {len(names)} names, {len(blobs)} blobs, "
            f"{len(versions)} versions."
        )
    versions = versions or [0] * len(names)
    return {name: StoredParam(values, version) for name, values, version in zip(names, blobs, versions, strict=True)}


def _read_blob(content: bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    fields = _fields(content)
    shape = integers(fields, 1) or []
    values = np.frombuffer(b"".join(_bytes(fields, 2)), "<f4").astype(np.float32)
    if values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{values.size} values do not fit the shape {tuple(shape)}")
    return values.reshape(shape)


def _fields(content: bytes) -> list[MessageField]:
    return columns(np.frombuffer(content, np.uint8)[None]) or []


def _bytes(fields: Iterable[MessageField], number: int) -> list[bytes]:
    """Return the bytes of each value of a field, except integers."""
    return [column.values.tobytes() for column in fields if column.number == number and column.wire != VARINT]
