"""Writes checkpoint files as SINGA does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from singa_dask.data.codecs.protobuf import BYTES, VARINT, key, varint
from singa_dask.data.codecs.singa_blobs import StoredParam


def write_blobprotos(params: Mapping[str, StoredParam]) -> bytes:
    """Return the content of a checkpoint file for SINGA; names are written as given."""
    parts = [key(3, VARINT) + varint(param.version) for param in params.values()]
    parts += [_field(4, name.encode()) for name in params]
    for param in params.values():
        shape = b"".join(key(1, VARINT) + varint(extent) for extent in param.values.shape)
        data = np.ascontiguousarray(param.values, "<f4").tobytes()
        parts.append(_field(5, shape + _field(2, data)))
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    return key(number, BYTES) + varint(len(content)) + content
