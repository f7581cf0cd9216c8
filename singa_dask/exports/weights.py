"""Read and write files of weights: arrays by name, in safetensors or npz, with metadata."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from singa_dask import fs
from singa_dask.data.stores.arrays.npz import write_npz
from singa_dask.errors import ConfigError, DataError
from singa_dask.lazy import require
from singa_dask.runtime.checkpoints.safetensors import tensor_chunks

METADATA = "__metadata__"
"""Entry of a file with the metadata."""


def metadata_texts(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata for safetensors and ONNX: strings, and other values as JSON."""
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in metadata.items()}


def encode_safetensors(values: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> bytes:
    """Return the bytes of a safetensors file."""
    _check_names(values)
    arrays = {name: np.ascontiguousarray(each) for name, each in values.items()}
    return b"".join(tensor_chunks(arrays, metadata_texts(metadata)))


def encode_npz(values: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> bytes:
    """Return the bytes of an npz file."""
    _check_names(values)
    file = io.BytesIO()
    write_npz(file, {METADATA: np.array(json.dumps(dict(metadata))), **values})
    return file.getvalue()


def _check_names(values: Mapping[str, np.ndarray]) -> None:
    """Raise ConfigError if an array has the name of the metadata."""
    if METADATA in values:
        raise ConfigError(f"a param is called {METADATA!r}, the name of a file's metadata. Rename it in the job.")


def read_weights(url: str) -> dict[str, np.ndarray]:
    """Return the arrays in an npz, safetensors or PyTorch file by name.

    Raises
    ------
    DataError
        The file cannot be read, or has another format.
    ConfigError
        PyTorch is needed and not installed.
    """
    content = fs.read_bytes(url)
    try:
        if url.endswith((".pt", ".pth")):
            return _from_torch(content, url)
        if content[:2] == b"PK":
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                return {name: file[name] for name in file.files if name != METADATA}
        # safetensors does not keep the order of arrays
        return dict(sorted(load(content).items(), key=lambda item: _natural(item[0])))
    except (SafetensorError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        expected = "Expected a file of safetensors, .npz of NumPy, or .pt of PyTorch."
        raise DataError(f"{url}: its arrays cannot be read: {error}. {expected}") from None


def _from_torch(content: bytes, url: str) -> dict[str, np.ndarray]:
    """Return the tensors of a state dict, without executing anything in the file."""
    hint = "Or write the state dict with safetensors.torch.save_file."
    torch = require("torch", "torch", f"{url}: a file of PyTorch", hint)
    try:
        tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(str(error).splitlines()[0]) from None
    if not isinstance(tensors, dict) or not all(torch.is_tensor(value) for value in tensors.values()):
        within = (
            [str(name) for name, each in tensors.items() if isinstance(each, dict)] if isinstance(tensors, dict) else []
        )
        found = f", but has dicts: {', '.join(within)}. Save one of them as a file of its own" if within else ""
        raise ValueError(f"it is not a state dict of tensors by name{found}")
    return {str(name): array_of(value) for name, value in tensors.items()}


def array_of(values: Any) -> np.ndarray:
    """Convert an array, or a PyTorch tensor on any device, to an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        # convert bfloat16 to float32, because NumPy has no bfloat16
        return np.asarray(values.float() if str(values.dtype) == "torch.bfloat16" else values)
    return np.asarray(values)


def _natural(name: str) -> list[Any]:
    """Return a sort key that places conv2 before conv10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
