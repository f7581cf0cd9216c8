"""Facts: what a call asks of an array, looked up once for as long as the array lives."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from singa_dask.arrays import Array


class Facts(NamedTuple):
    """What a call asks of an array: looked up for one that is there in each step, as numpy takes microseconds.

    Attributes
    ----------
    array : weak reference
    address : int
    kind : int
        A number of its shape, strides and dtype.
    """

    array: weakref.ref[Array]
    address: int
    kind: int


# By the id of an array that lives.
_FACTS: dict[int, Facts] = {}
_KINDS: dict[Any, int] = {}
_NUMBERS = itertools.count()


def facts_of(array: Array) -> Facts:
    """Return the facts of an array, whose memory and shape never change."""
    place = id(array)
    facts = _FACTS.get(place)
    if facts is None or facts.array() is not array:

        def forget(reference: weakref.ref[Array]) -> None:
            if (known := _FACTS.get(place)) is not None and known.array is reference:
                _FACTS.pop(place, None)

        kind = _KINDS.setdefault((array.shape, array.strides, array.dtype), next(_NUMBERS))
        facts = _FACTS[place] = Facts(weakref.ref(array, forget), array.ctypes.data, kind)
    return facts


def facts_of_all(arrays: Sequence[Array | None]) -> list[Facts | None]:
    """Return the facts of arrays; None for an array that is None."""
    return [None if array is None else facts_of(array) for array in arrays]
