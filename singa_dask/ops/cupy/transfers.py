"""Transfers: copies between a GPU and page-locked host memory that run beside kernels."""

from __future__ import annotations

from typing import Any

import cupy
from cupy.cuda import runtime

from singa_dask.ops.contract import Array as HostArray
from singa_dask.ops.cupy.device import Array, CupyDevice

__all__ = ["Transfers"]

Event = Any


class Transfers:
    """The copies of one worker. Only `synchronize` waits.

    The ``synchronize()`` of its events waits without taking a core.

    Parameters
    ----------
    gpu : CupyDevice
    """

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        # downloads wait for kernels; uploads, e.g. of the next batch, should not wait behind them
        with cupy.cuda.Device(gpu.index):
            self._down = cupy.cuda.Stream(non_blocking=True)

    def mark(self) -> Event:
        """Return the event that all kernels enqueued so far are done."""
        return self._record(self._gpu.stream)

    def download(self, x: Array, out: HostArray, after: Event) -> Event:
        """Copy a dense array to page-locked memory of its dtype after an event; return the event of its arrival."""
        self._down.wait_event(after)
        runtime.memcpyAsync(out.ctypes.data, x.data.ptr, x.nbytes, runtime.memcpyDeviceToHost, self._down.ptr)
        return self._record(self._down)

    def upload(self, x: HostArray, out: Array, after: Event) -> None:
        """Copy page-locked memory to a dense array of its dtype after an event; later kernels wait for it."""
        copies = self._gpu.copies
        copies.wait_event(after)
        runtime.memcpyAsync(out.data.ptr, x.ctypes.data, x.nbytes, runtime.memcpyHostToDevice, copies.ptr)
        self._gpu.stream.wait_event(self._record(copies))

    def synchronize(self) -> None:
        """Wait for all copies."""
        self._down.synchronize()
        self._gpu.copies.synchronize()

    def _record(self, stream: Any) -> Event:
        with cupy.cuda.Device(self._gpu.index):
            event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(stream)
        return event
