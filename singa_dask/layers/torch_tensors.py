"""Modules of PyTorch by name, tensors in the memory of arrays, and random numbers by a seed."""

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
"""Held while random numbers are drawn: PyTorch has one generator for all threads of a process."""


class LaterValues:
    """An array-like of initial values that are computed when they are read."""

    def __init__(self, read: Callable[[], Array]) -> None:
        self._read = read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._read(), dtype)


def import_torch(what: str) -> Any:
    """Return the package torch; ConfigError if it is not installed, which begins with ``what``."""
    return require("torch", "torch", what)


def find(path: tuple[str, ...], name: str) -> Any:
    """Return the class or function of a name such as ``mymodels:Encoder``.

    Parameters
    ----------
    path : tuple of str
        Place of the name in the layer, for errors.

    Raises
    ------
    ConfigError
        There is none.
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
    """Call the function or class of a name, with the random numbers of ``torch.manual_seed(seed)``.

    Raises
    ------
    ConfigError
        There is none, or the call fails. `find` explains ``path``.
    """
    made = find(path, name)
    try:
        with drawing(seed):
            return made(**args)
    except Exception as error:
        raise ConfigError(Problem(path, f"{name}: {type(error).__name__}: {error}")) from error


def seed_of(key: Sequence[int | str]) -> int:
    """Return the seed of a key of `Layer.random_key`, from 0 to 2^63 - 1."""
    return int.from_bytes(hashlib.blake2b(repr(tuple(key)).encode(), digest_size=8).digest(), "little") >> 1


@contextlib.contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Seed the generator of PyTorch, and set it back at the end."""
    torch = import_torch("PyTorch")
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def tensor_of(array: Array) -> Tensor:
    """Return a tensor in the memory of an array, which is NumPy's or, on a GPU, CuPy's."""
    torch = import_torch("PyTorch")
    if not isinstance(array, np.ndarray):
        return torch.from_dlpack(array)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def write_grad(grad: Tensor | None, memory: Array) -> None:
    """Write a gradient of PyTorch, None for 0, to the memory of a gradient of ours."""
    if grad is None:
        memory[...] = 0
    else:
        tensor_of(memory).copy_(grad)
