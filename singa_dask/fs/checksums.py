"""CRC32C (Castagnoli) checksums."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from google_crc32c import extend
from google_crc32c import value as crc_of


def checksum_of(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC32C of bytes; ``before`` is the checksum of the preceding bytes."""
    return int(extend(before, np.frombuffer(data, np.uint8)))


def crc32c(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the CRC32C of each row of (n, length) bytes."""
    return np.array([crc_of(np.ascontiguousarray(row)) for row in rows], np.uint32)


def masked(crc: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Mask checksums as TFRecord does, because a CRC of data that contains CRCs is weak."""
    return ((crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)).astype(np.uint32)
