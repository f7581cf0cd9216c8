"""Keep freed memory in this process while it hosts units, so that later steps reuse the memory.

Dask's nannies start processes with ``MALLOC_TRIM_THRESHOLD_=65536``. glibc then returns the memory of each large array
to the system as soon as the array is freed, and each new array causes page faults: a step of PyTorch took 1.4 times as
long.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# parameters of mallopt(3)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# glibc's own highest values, to which it raises these thresholds if no environment variable sets any of them
KEPT_TRIM_BYTES, KEPT_MMAP_BYTES = 64 << 20, 32 << 20
# glibc's initial threshold for mmap
DEFAULT_MMAP_BYTES = 128 << 10

_lock, _n_active = threading.Lock(), 0


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep up to 64 MiB of freed memory during the context, as malloc does outside of Dask's nannies.

    After the last active context, the nanny's threshold holds again, and freed memory goes back to the system. Nothing
    changes without glibc, if the environment sets no threshold for trimming, or if it sets a threshold for mmap.
    """
    global _n_active
    threshold = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    libc = ctypes.CDLL(None)
    if not (threshold.isdecimal() and hasattr(libc, "mallopt")) or "MALLOC_MMAP_THRESHOLD_" in os.environ:
        yield
        return
    with _lock:
        _n_active += 1
        if _n_active == 1:
            libc.mallopt(M_MMAP_THRESHOLD, KEPT_MMAP_BYTES)
            libc.mallopt(M_TRIM_THRESHOLD, KEPT_TRIM_BYTES)
    try:
        yield
    finally:
        with _lock:
            _n_active -= 1
            if not _n_active:
                libc.mallopt(M_MMAP_THRESHOLD, DEFAULT_MMAP_BYTES)
                libc.mallopt(M_TRIM_THRESHOLD, int(threshold))
                libc.malloc_trim(0)
