"""Coordinator: the barriers at the start and the end of a job, in process 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from singa_dask.comm import Address, Message

__all__ = ["Coordinator"]


class Coordinator:
    """Counts units at barriers; a state machine like the stub.

    Units start when all are there (``hello``), workers train when all have their params (``ready``), and servers end
    when all workers have ended (``leave``).

    Parameters
    ----------
    process_of : mapping of Address to int
        All units of the job.
    """

    KINDS: ClassVar[Mapping[str, str]] = {"hello": "start", "ready": "go", "leave": "stop"}

    def __init__(self, process_of: Mapping[Address, int]) -> None:
        units = set(process_of)
        workers = {unit for unit in units if unit.kind == "worker"}
        self._waiting = {"hello": units, "ready": set(workers), "leave": set(workers)}
        self._listeners = {"hello": sorted(units), "ready": sorted(workers), "leave": sorted(units - workers)}

    def missing(self, kind: str) -> list[Address]:
        """Return the units that have not sent ``kind`` yet."""
        return sorted(self._waiting[kind])

    def handle(self, message: Message) -> list[Message]:
        """Count a unit; after the last one, return the messages to those that wait."""
        waiting = self._waiting[message.kind]
        waiting.discard(message.src)
        if waiting:
            return []
        answer = self.KINDS[message.kind]
        return [Message(answer, src=Address.stub(0), dst=unit) for unit in self._listeners[message.kind]]
