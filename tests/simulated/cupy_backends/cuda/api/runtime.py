"""The CUDA runtime, by its other name."""

from cupy.cuda.runtime import *  # noqa: F403
from cupy.cuda.runtime import __all__ as __all__
