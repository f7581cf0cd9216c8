"""AsyncScalars: scalars that are copied from a GPU while it computes, so that nobody waits for them."""

from __future__ import annotations

import numpy as np
from cupy.cuda import runtime

from singa_dask.ops.cupy.device import Array, CupyDevice, event

__all__ = ["AsyncScalars"]


class AsyncScalars:
    """The newest values of scalars (1,) float64 that have reached the host; of one thread.

    Parameters
    ----------
    gpu : CupyDevice
    """

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        self._by_address: dict[int, _AsyncScalar] = {}

    def newest(self, scalar: Array) -> float | None:
        """Return the newest value on the host, None before the first; asks for the current one."""
        # the addresses are few: a new scalar may take the memory of an old one
        address = scalar.data.ptr
        if address not in self._by_address:
            self._by_address[address] = _AsyncScalar(self._gpu)
        return self._by_address[address].newest(scalar)


class _AsyncScalar:
    """The newest value of one scalar, and page-locked memory for the next."""

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        self._memory = gpu.pinned((1,), np.float64)
        self._event = event(gpu.index)
        self._under_way = False
        self._value: float | None = None

    def newest(self, scalar: Array) -> float | None:
        if self._under_way and self._event.done:
            self._value, self._under_way = float(self._memory[0]), False
        if not self._under_way:
            stream, target = self._gpu.stream, self._memory.ctypes.data
            runtime.memcpyAsync(target, scalar.data.ptr, scalar.nbytes, runtime.memcpyDeviceToHost, stream.ptr)
            self._event.record(stream)
            self._under_way = True
        return self._value
