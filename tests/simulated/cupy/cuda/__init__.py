"""Devices, streams, events and memory."""

from cupy._memory import MemoryPointer, MemoryPool, alloc_pinned_memory, set_allocator
from cupy._module import Function
from cupy._stream import Event, Graph, Stream, get_current_stream, get_elapsed_time
from cupy.cuda import compiler, device, driver, memory, runtime
from cupy.cuda.device import Device, get_cublas_handle

__all__ = [
    "Device",
    "Event",
    "Function",
    "Graph",
    "MemoryPointer",
    "MemoryPool",
    "Stream",
    "alloc_pinned_memory",
    "compiler",
    "device",
    "driver",
    "get_cublas_handle",
    "get_current_stream",
    "get_elapsed_time",
    "memory",
    "runtime",
    "set_allocator",
]
