"""The compiler's error."""

from cupy._compile import CompileException

__all__ = ["CompileException"]
