"""Phase: the purpose of a pass through the net, as flags (SINGA's phases)."""

from __future__ import annotations

import enum

__all__ = ["Phase"]


class Phase(enum.IntFlag):
    """Flags that every layer is given; the numbers are SINGA's.

    ``TRAIN``, ``VALIDATION`` and ``TEST`` select a net; the others describe the pass.
    """

    NONE = 0
    TRAIN = 1
    VALIDATION = 2
    TEST = 4
    POSITIVE = 8
    NEGATIVE = 16
    FORWARD = 32
    BACKWARD = 64
    LOSS = 128
    DEPLOY = 256
    AGGREGATE_GRADIENT = 512
