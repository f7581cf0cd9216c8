"""The CUDA runtime."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cupy import _errors, _memory, _world
from cupy._errors import CUDARuntimeError

__all__ = [
    "CUDA_R_8U",
    "CUDA_R_16BF",
    "CUDA_R_32F",
    "CUDA_R_64F",
    "CUDARuntimeError",
    "deviceSynchronize",
    "getDevice",
    "getDeviceCount",
    "getDeviceProperties",
    "memGetInfo",
    "memcpyAsync",
    "memcpyDeviceToDevice",
    "memcpyDeviceToHost",
    "memcpyHostToDevice",
    "memsetAsync",
    "setDevice",
    "streamCaptureModeGlobal",
    "streamCaptureModeRelaxed",
    "streamCaptureModeThreadLocal",
]

memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice = 1, 2, 3
streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = 0, 1, 2
CUDA_R_32F, CUDA_R_64F, CUDA_R_8U, CUDA_R_16BF = 0, 1, 8, 14


def getDeviceCount() -> int:
    return _world.device_count()


def getDevice() -> int:
    return _world.current_device()


def setDevice(device: int) -> None:
    _world.set_device(device)


def deviceSynchronize() -> None:
    _world.synchronize_device(_world.current_device())


def memGetInfo() -> tuple[int, int]:
    free = _memory.device_memory() - _memory.used(_world.current_device())
    return free, _memory.device_memory()


def getDeviceProperties(device: int) -> dict[str, Any]:
    if not 0 <= device < _world.device_count():
        raise CUDARuntimeError(_errors.INVALID_DEVICE)
    return {
        "name": b"Simulated GPU",
        "totalGlobalMem": _memory.device_memory(),
        "major": 8,
        "minor": 0,
        "multiProcessorCount": 4,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiProcessor": 2048,
        "sharedMemPerBlock": 48 * 1024,
        "warpSize": 32,
        "asyncEngineCount": 2,
    }


def _device_bytes(address: int, size: int, by: str) -> tuple[Any, Any]:
    """Return the block at an address of device memory, and `size` bytes of it."""
    block = _memory.find(address, by)
    offset = address - block.start
    if offset + size > block.nbytes:
        why = f"{by}: {size} bytes at byte {offset} of an array of {block.nbytes}"
        raise CUDARuntimeError(_errors.INVALID_VALUE, why)
    return block, block.bytes[offset : offset + size]


def _host_bytes(address: int, size: int) -> tuple[Any, bool]:
    """`size` bytes of host memory, and whether they are page-locked."""
    raw = _memory.find_pinned(address)
    if raw is None:
        return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8), False
    offset = address - raw.ctypes.data
    if offset + size > raw.size:
        raise CUDARuntimeError(_errors.INVALID_VALUE, f"{size} bytes at byte {offset} of a buffer of {raw.size}")
    return np.asarray(raw)[offset : offset + size], True


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    """Copy bytes when the stream gets there; memory that is not page-locked is read at once, or waited for."""
    queue = _world.queue_of(stream)
    if size == 0:
        return
    blocks, waits = [], False
    if kind == memcpyHostToDevice:
        source, pinned = _host_bytes(src, size)
        if not pinned and queue.capture is None:
            source = source.copy()
    else:
        block, source = _device_bytes(src, size, "memcpyAsync")
        blocks.append(block)
    if kind == memcpyDeviceToHost:
        target, pinned = _host_bytes(dst, size)
        waits = not pinned and queue.capture is None
    else:
        block, target = _device_bytes(dst, size, "memcpyAsync")
        blocks.append(block)
    queue.put(_world.Op("memcpyAsync", lambda: np.copyto(target, source), blocks, n_bytes=size))
    if waits:
        queue.synchronize()


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    queue = _world.queue_of(stream)
    if size == 0:
        return
    block, target = _device_bytes(ptr, size, "memsetAsync")
    queue.put(_world.Op("memsetAsync", lambda: target.fill(value), (block,)))
