"""CRC32C (Castagnoli) checksums."""

from __future__ import annotations

import numpy as np
from google_crc32c import extend


def checksum_of(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC32C of bytes; ``before`` is the CRC32C of the bytes that precede them."""
    return int(extend(before, np.frombuffer(data, np.uint8)))


def masked(crc: int) -> int:
    """Mask a checksum as TFRecord does, because a CRC of data that contains CRCs is weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
