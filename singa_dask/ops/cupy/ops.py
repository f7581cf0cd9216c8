"""CupyOps: kernels on a GPU, by CuPy.

Kernels are enqueued, and nobody waits for them.
"""

from __future__ import annotations

from typing import NoReturn

import cupy

from singa_dask.errors import ConfigError, Problem
from singa_dask.ops.cupy.capture import CupyCapture
from singa_dask.ops.cupy.device import CupyDevice, count_devices, find_device
from singa_dask.ops.cupy.elementwise import CupyElementwise
from singa_dask.ops.cupy.images import CupyImages
from singa_dask.ops.cupy.normalisation import CupyNormalisation
from singa_dask.ops.cupy.recurrent import CupyRecurrent
from singa_dask.ops.cupy.softmax import CupyBinary, CupySoftmax
from singa_dask.ops.cupy.transfers import Transfers
from singa_dask.ops.cupy.updates import CupyUpdates
from singa_dask.ops.numpy.ops import NumpyOps

__all__ = ["CupyOps"]

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
