"""Kernels for NVIDIA GPUs: CuPy, cuBLAS, cuDNN and our own in ``cuda/``.

Import modules of this package only where CuPy is installed; `singa_dask.ops.get_ops` does it on demand.
"""

__all__: list[str] = []
