"""Device memory and page-locked host memory.

Device memory is host memory of our own between two ends that nobody may write. New memory is full of garbage that is
NaN as a number, and so are the ends. Memory that is let go is spoilt when the stream that it came from gets there:
work of another stream that comes later finds that out.
"""

from __future__ import annotations

import bisect
import ctypes
import os
import weakref
from typing import Any

import numpy as np

from cupy import _errors, _world

# NaN as bfloat16, float32 and float64, and no value that a kernel writes.
GARBAGE = b"\xf5\xff"
END = 1024
UNIT = 512
END_BYTES = GARBAGE * (END // 2)
FREE_STREAM = "freeing memory"

# None, as all that is here, once the interpreter takes modules apart: then memory is let go without ado.
_alive = True

# Device memory by address.
_blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
_starts: list[int] = []


def _spoil(values: Any) -> None:
    values[: values.size // 2 * 2].view(np.uint16)[:] = int.from_bytes(GARBAGE, "little")


def _forget_gone(starts: list[int], there: Any) -> None:
    if len(starts) > 1000 + 2 * len(there):
        starts[:] = sorted(there)


class Block:
    """The bytes of one allocation; work that is enqueued holds on to it, so that addresses stay good."""

    def __init__(self, nbytes: int, device: int) -> None:
        self.device = device
        self.nbytes = nbytes
        self.freed = False
        room = np.empty(2 * END + nbytes + UNIT, np.uint8)
        skip = -(room.ctypes.data + END) % UNIT
        whole = room[skip : skip + END + nbytes + END]
        _spoil(whole)
        self.whole = whole
        self.bytes = whole[END : END + nbytes]
        self.start = whole.ctypes.data + END
        # The second end of an odd number of bytes starts in the middle of a pair.
        whole[END + nbytes :] = np.frombuffer(END_BYTES, np.uint8)
        with _world.LOCK:
            _blocks[self.start] = self
            _forget_gone(_starts, _blocks)
            bisect.insort(_starts, self.start)

    def check_ends(self, by: str) -> None:
        for end, where in ((self.start - END, "before"), (self.start + self.nbytes, "after")):
            if ctypes.string_at(end, END) != END_BYTES:
                ctypes.memmove(end, END_BYTES, END)
                why = f"{by} wrote {where} the {self.nbytes} bytes of an array"
                raise _errors.CUDARuntimeError(_errors.ILLEGAL_ADDRESS, why)

    def check_alive(self, by: str) -> None:
        if self.freed:
            why = f"{by} uses memory that was let go, on a stream that it does not come from"
            raise _errors.CUDARuntimeError(_errors.ILLEGAL_ADDRESS, why)

    def spoil(self) -> None:
        self.check_ends("somebody")
        self.freed = True
        _spoil(self.bytes)


def find(address: int, by: str) -> Block:
    """Return the block of device memory that holds an address."""
    with _world.LOCK:
        at = bisect.bisect_right(_starts, address)
        while at > 0:
            block = _blocks.get(_starts[at - 1])
            if block is not None:
                if address < block.start + max(block.nbytes, 1) and not block.freed:
                    return block
                break
            at -= 1
            del _starts[at]
    raise _errors.CUDARuntimeError(_errors.ILLEGAL_ADDRESS, f"{by}: {address:#x} is no device memory")


def check_all(device: int) -> None:
    for block in list(_blocks.values()):
        if block.device == device:
            block.check_ends("somebody")


def device_memory() -> int:
    return int(os.environ.get("SIMULATED_MEMORY", str(4 << 30)))


_used: dict[int, int] = {}


def used(device: int) -> int:
    return _used.get(device, 0)


class OutOfMemoryError(MemoryError):
    """No room for an array on a device, or in a pool with a limit."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(text + (f", limit set to: {limit:,} bytes)." if limit else ")."))


class Memory:
    """What owns a block: when the last array on it goes, so does the memory."""

    def __init__(self, size: int, pool: MemoryPool) -> None:
        self.device_id = _world.current_device()
        self.size = size
        self._block = Block(size, self.device_id)
        self._pool = pool
        self._queue = _current_queue(self.device_id)
        self.ptr = self._block.start

    def __del__(self) -> None:
        # May run at any time in any thread, so it takes no lock; appending is one step.
        if not _alive or not hasattr(self, "_queue"):
            return
        self._pool._give_back(self.device_id, self.size)
        if not self._queue.null:
            self._queue.ops.append(_world.Op(FREE_STREAM, self._block.spoil))
            return
        try:
            self._block.check_ends("somebody")
        except _errors.CUDARuntimeError as error:
            _world.FAULTS.append(str(error))


class MemoryPointer:
    """A place in device memory."""

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset
        self.device_id = mem.device_id

    @property
    def device(self) -> Any:
        from cupy.cuda.device import Device

        return Device(self.device_id)

    def __int__(self) -> int:
        return self.ptr


class MemoryPool:
    """Memory of the devices, as much as the pool's limit and the device allow."""

    def __init__(self, allocator: Any = None) -> None:
        self._used: dict[int, int] = {}
        self._limits: dict[int, int] = {}

    def malloc(self, size: int) -> MemoryPointer:
        device = _world.current_device()
        queue = _current_queue(device)
        if queue.capture is not None:
            raise _errors.CUDARuntimeError(_errors.CAPTURE_UNSUPPORTED, f"{size} bytes are asked for")
        rounded = -(-size // UNIT) * UNIT
        limit = self.get_limit()
        mine = self._used.get(device, 0)
        if limit and mine + rounded > limit:
            raise OutOfMemoryError(rounded, mine, limit)
        if used(device) + rounded > device_memory():
            raise OutOfMemoryError(rounded, mine)
        memory = Memory(size, self)
        for ledger in (self._used, _used):
            ledger[device] = ledger.get(device, 0) + rounded
        return MemoryPointer(memory, 0)

    def _give_back(self, device: int, size: int) -> None:
        rounded = -(-size // UNIT) * UNIT
        for ledger in (self._used, _used):
            ledger[device] = ledger.get(device, 0) - rounded

    def used_bytes(self) -> int:
        return self._used.get(_world.current_device(), 0)

    def total_bytes(self) -> int:
        return self.used_bytes()

    def free_bytes(self) -> int:
        return 0

    def n_free_blocks(self) -> int:
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        """Nothing: what is let go is given back at once."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        limit = size or 0 if fraction is None else int(fraction * device_memory())
        self._limits[_world.current_device()] = limit

    def get_limit(self) -> int:
        return self._limits.get(_world.current_device(), 0)


_default_pool = MemoryPool()


_allocator: Any = _default_pool.malloc


def allocate(size: int) -> MemoryPointer:
    pointer: MemoryPointer = _allocator(size)
    return pointer


def set_allocator(allocator: Any = None) -> None:
    global _allocator
    _allocator = _default_pool.malloc if allocator is None else allocator


def get_default_memory_pool() -> MemoryPool:
    return _default_pool


def _current_queue(device: int) -> _world.Queue:
    from cupy import _stream

    return _stream.current(device)._queue


# Page-locked memory: copies that are enqueued read and write it when they run.
_pinned: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_pinned_starts: list[int] = []


class _Locked(np.ndarray):  # type: ignore[type-arg]
    """The bytes of a page-locked buffer; a class of its own, so that references to it can be weak."""


def alloc_pinned_memory(size: int) -> Any:
    """Make a page-locked buffer of `size` bytes or more, good as a buffer for numpy, with its address as `ptr`."""
    _world.current_device()
    raw = np.empty(max(size, 1), np.uint8).view(_Locked)
    _spoil(raw)
    pointer_type = type(
        "PinnedMemoryPointer",
        (ctypes.c_char * raw.size,),
        {"size": lambda self: ctypes.sizeof(self), "__del__": _spoil_pinned},
    )
    pointer = pointer_type.from_buffer(raw)
    pointer.ptr = raw.ctypes.data
    pointer._keep = raw
    with _world.LOCK:
        _pinned[pointer.ptr] = raw
        _forget_gone(_pinned_starts, _pinned)
        bisect.insort(_pinned_starts, pointer.ptr)
    return pointer


def _spoil_pinned(pointer: Any) -> None:
    if _alive:
        _spoil(pointer._keep)


def find_pinned(address: int) -> Any:
    """Return the page-locked buffer that holds an address; None for other host memory."""
    with _world.LOCK:
        at = bisect.bisect_right(_pinned_starts, address)
        while at > 0:
            raw = _pinned.get(_pinned_starts[at - 1])
            if raw is not None:
                return raw if address < raw.ctypes.data + raw.size else None
            at -= 1
            del _pinned_starts[at]
    return None
