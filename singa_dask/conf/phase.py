"""What a pass through the net is for; SINGA's phases, as flags that combine."""

from __future__ import annotations

import enum

__all__ = ["Phase"]


class Phase(enum.IntFlag):
    """Flags told to every layer; the numbers are SINGA's.

    ``TRAIN``, ``VALIDATION`` and ``TEST`` choose a net; the others say what a pass does.
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
