"""Arrivals: figures that are copied from a GPU while it computes, for who wants to know of them without waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
from cupy.cuda import runtime

from singa_dask.ops.cupy.device import CupyDevice, event

__all__ = ["Arrivals"]

# Arrays are Any: they are CuPy's.
Array = Any


class Arrivals:
    """The newest values of figures (1,) float64 that have come to the host; of one thread.

    Parameters
    ----------
    gpu : CupyDevice
    """

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        self._by_place: dict[int, _Arrival] = {}

    def newest(self, figure: Array) -> float | None:
        """Return the newest value that has come, None before one has; ask for that of now unless one is on its way."""
        # a figure that is begun anew may lie where one lay that is gone: the few places serve for ever
        place = figure.data.ptr
        if place not in self._by_place:
            self._by_place[place] = _Arrival(self._gpu)
        return self._by_place[place].newest(figure)


class _Arrival:
    """What has come of one figure, and page-locked memory for what comes next."""

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        self._memory = gpu.pinned((1,), np.float64)
        self._event = event(gpu.index)
        self._under_way = False
        self._value: float | None = None

    def newest(self, figure: Array) -> float | None:
        if self._under_way and self._event.done:
            self._value, self._under_way = float(self._memory[0]), False
        if not self._under_way:
            stream, target = self._gpu.stream, self._memory.ctypes.data
            runtime.memcpyAsync(target, figure.data.ptr, figure.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
            self._event.record(stream)
            self._under_way = True
        return self._value
