"""Encode tensors as safetensors, without copying them more than once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["encode_tensors"]

# tensors of the last dtype come first
DTYPES = ("U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64", "U64")


def encode_tensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return the same bytes as ``safetensors.numpy.save``, which copies each tensor three times.

    Parameters
    ----------
    tensors : mapping of str to ndarray
        By name: contiguous arrays of integers or floats of NumPy, little-endian.
    """
    dtypes = {name: f"{array.dtype.kind.upper()}{8 * array.itemsize}" for name, array in tensors.items()}
    ordered = sorted(tensors, key=lambda name: (-DTYPES.index(dtypes[name]), name))
    header: dict[str, Any] = {}
    end = 0
    for name in ordered:
        start, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": dtypes[name], "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    values = (memoryview(tensors[name].reshape(-1)) for name in ordered)
    return b"".join([len(text).to_bytes(8, "little"), text, *values])
