"""Kernels for NVIDIA GPUs: CuPy, cuBLAS, cuDNN and our own in ``cuda/``.

Import modules of this package only where CuPy is installed; `singa_dask.ops.get_ops` does it on demand.

Kernels
    `ops`: the class `CupyOps`, put together from one file a family: `elementwise`, `linear`, `conv`, `images`,
    `normalisation`, `softmax`, `binary`, `recurrent`, `random`, `updates`.
What they are launched with
    `device`: a GPU, its streams and compiled kernels. `memory`: its memory. `transfers`: copies beside kernels.
    `weights`: weights in other layouts. `value_kernel`, `launch`: kernels value by value, grids and types.
Libraries
    `cublas`, `cudnn`: how they are called. `choices`: which of several ways is the fastest.
"""

__all__: list[str] = []
