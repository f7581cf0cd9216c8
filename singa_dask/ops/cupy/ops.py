"""CupyOps: kernels on a GPU, by CuPy.

Kernels are enqueued, and nobody waits for them.
"""

from __future__ import annotations

from typing import Any, NoReturn

import cupy
from cupy.cuda import runtime

from singa_dask.arrays import Array as HostArray
from singa_dask.errors import ConfigError, Problem
from singa_dask.ops.cupy.capture import CupyCapture
from singa_dask.ops.cupy.device import Array, CupyDevice, count_devices, find_device
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.images import CupyImages
from singa_dask.ops.cupy.normalisation import CupyNormalisation
from singa_dask.ops.cupy.recurrent import CupyRecurrent
from singa_dask.ops.cupy.softmax import CupyBinary, CupySoftmax
from singa_dask.ops.cupy.updates import CupyUpdates
from singa_dask.ops.numpy.ops import NumpyOps

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


# GPUs multiply bfloat16 from this compute capability on.
BFLOAT16_FROM = 80


class CupyOps(
    CupyImages,
    CupyElementwise,
    CupySoftmax,
    CupyBinary,
    CupyNormalisation,
    CupyRecurrent,
    CupyUpdates,
    CupyCapture,
    NumpyOps,
):
    """Kernels for the memory of a GPU: float32, float64, or bfloat16 with weights in float32.

    An object belongs to one thread. Those of one GPU share its stream: kernels run in the order in which they
    are enqueued. A thread calls kernels inside of `activate`. Records, labels and other integers may be host arrays.

    Parameters
    ----------
    gpu : CupyDevice or int
        One of the GPUs that this process sees.
    precision : str
        "float32", "tf32" (matrix products and convolutions), "bf16" or "float64".

    Raises
    ------
    ConfigError
        There is no such GPU, or it has no bfloat16.
    """

    name = "cupy"

    def __init__(self, gpu: CupyDevice | int = 0, precision: str = "float32") -> None:
        super().__init__(find_device(gpu) if isinstance(gpu, int) else gpu, precision)
        capability = int(self.gpu.capability)
        if precision == "bf16" and capability < BFLOAT16_FROM:
            message = f"bf16 needs a GPU of compute capability 8.0 or later; {self.device} has {capability / 10}."
            raise ConfigError(Problem(("precision",), f"{message} Say float32."))

    def __reduce__(self) -> NoReturn:
        raise TypeError("CupyOps: kernels do not travel, as they hold memory of this process. Call get_ops there.")

    @staticmethod
    def count() -> int:
        return count_devices()

    def transfers(self) -> Transfers:
        return Transfers(self.gpu)

    def release(self) -> None:
        with self.gpu.activate():
            cupy.get_default_memory_pool().free_all_blocks()
