"""CRC32C (Castagnoli), of many byte strings of one length at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

try:
    # as fast as memory, and optional: singa-dask[crc]
    from google_crc32c import value as one_by_one
except ImportError:
    one_by_one = None

__all__ = ["crc32c", "masked"]

POLYNOMIAL = 0x82F63B78
FULL = np.uint32(0xFFFFFFFF)


def _table() -> npt.NDArray[np.uint32]:
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, values >> 1 ^ np.uint32(POLYNOMIAL), values >> 1)
    return values


TABLE = _table()


def crc32c(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of each row of (n, length) bytes."""
    if one_by_one is not None:
        return np.array([one_by_one(row.tobytes()) for row in rows], np.uint32)
    crc = np.full(len(rows), FULL)
    for column in np.ascontiguousarray(rows.T):
        crc = TABLE[(crc ^ column) & 0xFF] ^ crc >> 8
    return crc ^ FULL


def masked(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mask checksums as TFRecord does, so that the checksum of a checksum is no special value."""
    return ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype(np.uint32)
