"""Kernels for NVIDIA GPUs, from CuPy, cuBLAS, cuDNN and the CUDA sources in ``cuda/``.

Modules of this package need CuPy; `singa_dask.ops.get_ops` imports them on demand.

Kernels
    `ops`: the class `CupyOps`, combined from one file a family: `elementwise`, `linear`, `conv`, `images`,
    `normalisation`, `softmax`, `binary`, `recurrent`, `random`, `updates`.
Device and launches
    `device`: a GPU, its streams and compiled kernels. `memory`: its memory. `transfers`: copies in parallel with
    kernels. `weights`: weights in other layouts. `value_kernel`: elementwise kernels. `launch`: grids and types of
    launches.
Libraries
    `cublas`, `cudnn`: calls of these libraries. `choices`: finds and stores the fastest of several algorithms.
"""

__all__: list[str] = []
