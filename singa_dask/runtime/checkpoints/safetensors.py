"""Encode tensors in the safetensors format without copying them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

DTYPES = ("U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64", "U64")


def tensor_chunks(
    tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> list[bytes | memoryview]:
    """Return the chunks of a safetensors file: its header, and views of the given arrays.

    The arrays must be contiguous and little-endian. The bytes equal the result of ``safetensors.numpy.save``, which
    copies each tensor three times.
    """
    dtypes = {name: f"{array.dtype.kind.upper()}{8 * array.itemsize}" for name, array in tensors.items()}
    ordered = sorted(tensors, key=lambda name: (-DTYPES.index(dtypes[name]), name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in ordered:
        start, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": dtypes[name], "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    values = (memoryview(tensors[name].reshape(-1).view(np.uint8)) for name in ordered)
    return [len(text).to_bytes(8, "little"), text, *values]
