"""Rejoin: what a process needs to know that joins a job whose other processes go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from singa_dask.comm import Address

__all__ = ["Rejoin"]


@dataclass(frozen=True)
class Rejoin:
    """What a process needs to know that joins a job whose other processes go on.

    Attributes
    ----------
    running : frozenset of Address
        Units that run in other processes.
    left : frozenset of Address
        Workers that are done.
    steps : mapping of int to int
        First step of each worker group that starts again here.
    """

    running: frozenset[Address]
    left: frozenset[Address]
    steps: Mapping[int, int]
