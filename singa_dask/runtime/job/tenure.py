"""Tenure: what the driver of a detached job has until another one takes over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["TakenOver", "Tenure"]


class TakenOver(Exception):
    """The driver has left its job to another one, and writes nothing more."""


@dataclass(frozen=True)
class Tenure:
    """The part of a driver on the cluster in a job that may have several of them, one after the other.

    Attributes
    ----------
    number : int
        Of the driver: 1 for the first.
    has_begun : bool
        Whether one before it has submitted the job.
    renew : callable
        Asks the scheduler whether this is still the driver of the job.
    """

    number: int
    has_begun: bool
    renew: Callable[[], bool]
