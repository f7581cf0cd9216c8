"""PyTorch for layers: classes by name, tensors in the memory of arrays, seeded random numbers."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from singa_dask import modules
from singa_dask.errors import ConfigError, Problem
from singa_dask.lazy import require
from singa_dask.ops.contract import Array

Tensor: TypeAlias = Any
Module: TypeAlias = Any
_GENERATOR = threading.RLock()
"""Lock to hold while random numbers are drawn, because all threads of a process share PyTorch's generator."""


class LaterValues:
    """An array-like of initial values that are computed when they are read."""

    def __init__(self, read: Callable[[], Array]) -> None:
        self._read = read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._read(), dtype)


def import_torch(what: str) -> Any:
    """Import torch. If torch is not installed, raise a ConfigError whose message begins with ``what``."""
    return require("torch", "torch", what)


def find(path: tuple[str, ...], name: str) -> Any:
    """Return a class or function, given its name, such as ``mymodels:Encoder``.

    Parameters
    ----------
    path : tuple of str
        Path of the name within the layer, for error messages.

    Raises
    ------
    ConfigError
        The class or function does not exist.
    """
    place, colon, inner = name.partition(":")
    if not (place and colon and inner):
        raise ConfigError(Problem(path, f"expected module:name, e.g. mymodels:Encoder, got {name!r}."))
    found: Any = modules.import_module(place)
    for step in inner.split("."):
        found = getattr(found, step, None)
    if not callable(found):
        raise ConfigError(Problem(path, f"{place} has no class or function {inner!r}."))
    return found


def call(path: tuple[str, ...], name: str, args: Mapping[str, Any], seed: int) -> Any:
    """Call a function or class, given its name, after seeding PyTorch's generator with ``seed``.

    Raises
    ------
    ConfigError
        The class or function does not exist, or the call fails. For ``path``, see `find`.
    """
    made = find(path, name)
    try:
        with drawing(seed):
            return made(**args)
    except Exception as error:
        raise ConfigError(Problem(path, f"{name}: {type(error).__name__}: {error}")) from error


def seed_of(key: Sequence[int | str]) -> int:
    """Return a seed from 0 to 2^63 - 1, given a key from `Layer.random_key`."""
    return int.from_bytes(hashlib.blake2b(repr(tuple(key)).encode(), digest_size=8).digest(), "little") >> 1


@contextlib.contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Seed PyTorch's generator for the context; restore the generator at the end."""
    torch = import_torch("PyTorch")
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def tensor_of(array: Array) -> Tensor:
    """Return a tensor that shares the memory of an array of NumPy or CuPy."""
    torch = import_torch("PyTorch")
    if not isinstance(array, np.ndarray):
        return torch.from_dlpack(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def write_grad(grad: Tensor | None, memory: Array) -> None:
    """Copy a gradient of PyTorch to the array ``memory``. None means that the gradient is 0."""
    if grad is None:
        memory[...] = 0
    else:
        tensor_of(memory).copy_(grad)
