"""BlobProtos: reads the checkpoint files of SINGA.

A file is one protobuf message with parallel repeated fields: versions (3), names (4) and blobs (5). The ids (2) are
never written. A blob has a shape (1) and float32 data (2). SINGA 0.2 and later prefix each name with ``0#``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from singa_dask.data.codecs.protobuf import VARINT, layout, varints_of
from singa_dask.errors import CheckpointError


@dataclass(frozen=True)
class StoredParam:
    """A param in a checkpoint of SINGA.

    Attributes
    ----------
    values : ndarray, float32
    version : int
        Number of updates applied.
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
        Params in file order, with the names of the file; see `plain_param_name`.

    Raises
    ------
    CheckpointError
        The file is damaged, or of another format.
    """
    names: list[str] = []
    versions: list[int] = []
    blobs: list[np.ndarray[Any, np.dtype[np.float32]]] = []
    try:
        for number, value in _fields(content):
            if number == 3:
                versions += _integers(value)
            elif number == 4:
                names.append(str(_bytes(value), "utf-8"))
            elif number == 5:
                blobs.append(_read_blob(_bytes(value)))
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
    shape: list[int] = []
    floats = []
    for number, value in _fields(content):
        if number == 1:
            shape += _integers(value)
        elif number == 2:
            floats.append(_bytes(value))
    values = np.frombuffer(b"".join(floats), "<f4").astype(np.float32)
    if values.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{values.size} values do not fit the shape {tuple(shape)}")
    return values.reshape(shape)


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field: an integer, or bytes (four or eight for fixed-size values)."""
    for number, wire, start, end in layout(content)[0]:
        value = content[start:end]
        yield number, varints_of(value)[0] if wire == VARINT else value


def _integers(value: int | bytes) -> list[int]:
    """Read a repeated integer field: one value, or packed values."""
    return [value] if isinstance(value, int) else varints_of(value)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(f"an integer {value} where bytes were expected")
    return value
