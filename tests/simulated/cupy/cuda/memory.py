"""Device memory."""

from cupy._memory import Memory, MemoryPointer, MemoryPool, OutOfMemoryError, set_allocator

__all__ = ["Memory", "MemoryPointer", "MemoryPool", "OutOfMemoryError", "set_allocator"]
