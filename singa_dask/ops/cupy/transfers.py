"""CupyTransfers: copies between a GPU and page-locked host memory, in parallel with kernels."""

from __future__ import annotations

from typing import Any

import cupy
from cupy.cuda import runtime

from singa_dask.arrays import Array as HostArray
from singa_dask.ops.cupy.device import Array, CupyDevice


class CupyTransfers:
    """`Transfers` of one worker. The ``synchronize`` of its events waits without using a core."""

    def __init__(self, gpu: CupyDevice) -> None:
        self._gpu = gpu
        # downloads have a separate stream, so that uploads, such as the next batch, do not wait for them
        with cupy.cuda.Device(gpu.index):
            self._down = cupy.cuda.Stream(non_blocking=True)

    def mark(self) -> Any:
        return self._record(self._gpu.stream)

    def download(self, x: Array, out: HostArray, after: Any) -> Any:
        self._down.wait_event(after)
        runtime.memcpyAsync(out.ctypes.data, x.data.ptr, x.nbytes, runtime.memcpyDeviceToHost, self._down.ptr)
        return self._record(self._down)

    def upload(self, x: HostArray, out: Array, after: Any) -> None:
        copies = self._gpu.copies
        copies.wait_event(after)
        runtime.memcpyAsync(out.data.ptr, x.ctypes.data, x.nbytes, runtime.memcpyHostToDevice, copies.ptr)
        self._gpu.stream.wait_event(self._record(copies))

    def synchronize(self) -> None:
        self._down.synchronize()
        self._gpu.copies.synchronize()

    def _record(self, stream: Any) -> Any:
        with cupy.cuda.Device(self._gpu.index):
            event = cupy.cuda.Event(block=True, disable_timing=True)
        event.record(stream)
        return event
