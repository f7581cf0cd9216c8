"""The driver's error."""

from cupy._errors import CUDADriverError

__all__ = ["CUDADriverError"]
