"""CupyOps: kernels on a GPU, by CuPy. Calls enqueue kernels without waiting for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from singa_dask.errors import ConfigError, Problem

try:
    import cupy
except ImportError as missing:
    install = "Install it: pip install 'singa-dask[cuda12]', or [cuda13]."
    raise ConfigError(f"device 'cupy' cannot be used here: {missing}. {install}") from missing

from singa_dask.ops.backends import OPS
from singa_dask.ops.contract import Key
from singa_dask.ops.cupy.binary import CupyBinary
from singa_dask.ops.cupy.conv import CupyConv
from singa_dask.ops.cupy.device import CupyDevice, count_devices, find_device
from singa_dask.ops.cupy.images import CupyImages
from singa_dask.ops.cupy.normalisation import CupyNormalisation
from singa_dask.ops.cupy.random import CupyRandom, Draws
from singa_dask.ops.cupy.recurrent import CupyRecurrent
from singa_dask.ops.cupy.softmax import CupySoftmax
from singa_dask.ops.cupy.transfers import CupyTransfers
from singa_dask.ops.cupy.updates import CupyUpdates
from singa_dask.ops.cupy.weights import StepWeights
from singa_dask.ops.numpy import NumpyOps


class CupyGraph:
    """`CapturedKernels` as a CUDA graph.

    In small nets a launch takes the host longer than the kernel takes the GPU.
    """

    def __init__(self, ops: CupyOps, graph: Any, draws: Draws, weights: list[StepWeights]) -> None:
        self._ops, self._graph, self._draws, self._weights = ops, graph, draws, weights
        self._n_grown = ops.n_grown

    @property
    def is_valid(self) -> bool:
        return self._n_grown == self._ops.n_grown

    def replay(self, key_now: Callable[[Key], Key]) -> None:
        self._draws.put(self._ops.gpu, key_now)
        self._graph.launch(stream=self._ops.gpu.stream)


# Minimum compute capability of GPUs that multiply bfloat16.
BFLOAT16_FROM = 80


@OPS.register("cupy")
class CupyOps(
    CupyImages,
    CupyConv,
    CupySoftmax,
    CupyBinary,
    CupyNormalisation,
    CupyRecurrent,
    CupyRandom,
    CupyUpdates,
    NumpyOps,
):
    """Kernels for a GPU: float32, float64, or bfloat16 with weights in float32.

    Use an object in one thread, inside of `activate`. Objects of one GPU share its stream, so that kernels run in the
    order in which they are enqueued. Records, labels and other integers may be host arrays.

    Parameters
    ----------
    gpu : CupyDevice or int
        A GPU, by its number in this process.
    precision : str
        "float32", "tf32" (matrix products and convolutions), "bf16" or "float64".

    Raises
    ------
    ConfigError
        The GPU does not exist, or has no bfloat16.
    """

    name = "cupy"
    supports_capture = True

    def __init__(self, gpu: CupyDevice | int = 0, precision: str = "float32") -> None:
        super().__init__(find_device(gpu) if isinstance(gpu, int) else gpu, precision)
        capability = int(self.gpu.capability)
        if precision == "bf16" and capability < BFLOAT16_FROM:
            message = f"bf16 needs a GPU of compute capability 8.0 or later; {self.device} has {capability / 10}."
            raise ConfigError(Problem(("precision",), f"{message} Use float32."))

    def __reduce__(self) -> NoReturn:
        raise TypeError("CupyOps cannot be pickled, as it holds memory of this process. Call get_ops there.")

    @staticmethod
    def count() -> int:
        return count_devices()

    def transfers(self) -> CupyTransfers:
        return CupyTransfers(self.gpu)

    def capture(self, run: Callable[[], None]) -> CupyGraph:
        draws = self.draws = Draws(self)
        try:
            graph, weights = self.step_graph(run)
        finally:
            self.draws = None
        return CupyGraph(self, graph, draws, weights)

    def release(self) -> None:
        with self.gpu.activate():
            cupy.get_default_memory_pool().free_all_blocks()
