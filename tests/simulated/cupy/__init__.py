"""A stand-in for CuPy where there is no GPU: only what this project uses of it, run late and checked strictly.

SIMULATED_DEVICES (2) and SIMULATED_MEMORY (bytes of each, 4 GiB) say what there is; SIMULATED_ORDER=reverse turns the
order of threads, blocks and streams round.
"""

from cupy import cuda
from cupy._array import asarray, asnumpy, empty, ndarray, zeros
from cupy._elementwise import ElementwiseKernel
from cupy._memory import get_default_memory_pool
from cupy._module import RawModule

__version__ = "14.0.0"
__simulated__ = True
__all__ = [
    "ElementwiseKernel",
    "RawModule",
    "asarray",
    "asnumpy",
    "cuda",
    "empty",
    "get_default_memory_pool",
    "ndarray",
    "zeros",
]
