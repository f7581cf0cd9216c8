"""ArrayInfo: address, shape, strides and dtype of an array, looked up once while the array lives."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from singa_dask.arrays import Array


class ArrayInfo(NamedTuple):
    """The properties of an array that a call needs.

    They are cached, because NumPy takes microseconds to return them.

    Attributes
    ----------
    array : weak reference
    address : int
    kind : int
        A number that arrays of equal shape, strides and dtype have in common.
    """

    array: weakref.ref[Array]
    address: int
    kind: int


# id of a living array -> its info
_INFOS: dict[int, ArrayInfo] = {}
_KINDS: dict[Any, int] = {}
_NUMBERS = itertools.count()


def info_of(array: Array) -> ArrayInfo:
    """Return the info of an array, whose memory and shape must not change."""
    place = id(array)
    info = _INFOS.get(place)
    if info is None or info.array() is not array:

        def forget(reference: weakref.ref[Array]) -> None:
            if (known := _INFOS.get(place)) is not None and known.array is reference:
                _INFOS.pop(place, None)

        kind = _KINDS.setdefault((array.shape, array.strides, array.dtype), next(_NUMBERS))
        info = _INFOS[place] = ArrayInfo(weakref.ref(array, forget), array.ctypes.data, kind)
    return info


def infos_of(arrays: Sequence[Array | None]) -> list[ArrayInfo | None]:
    """Return the infos of arrays; the info of an argument that is None is None."""
    return [None if array is None else info_of(array) for array in arrays]
