"""Coordinator: the barriers at the start and the end of a job, in process 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from singa_dask.comm import Address, Message
from singa_dask.runtime.units.initial_state import Rejoin


class Coordinator:
    """Counts units at barriers; a state machine like the stub.

    Units start when all are there (``hello``), workers train when all have their params (``ready``), and servers end
    when all workers have ended (``leave``). Units that join a running job wait for each other only. A unit that sends
    the same message twice counts once; if nobody is missing any more, it is answered again.

    Parameters
    ----------
    process_of : mapping of Address to int
        All units of the job.
    rejoin : Rejoin, optional
        If other processes of the job are running.
    """

    KINDS: ClassVar[Mapping[str, str]] = {"hello": "start", "ready": "go", "leave": "stop"}

    def __init__(self, process_of: Mapping[Address, int], rejoin: Rejoin | None = None) -> None:
        units = set(process_of)
        workers = {unit for unit in units if unit.kind == "worker"}
        left, running = (rejoin.left, rejoin.running) if rejoin else (frozenset[Address](), frozenset[Address]())
        starting = units - running - left
        self._servers = sorted(units - workers)
        self._missing = {"hello": starting, "ready": starting & workers, "leave": workers - left}
        self._present: dict[str, set[Address]] = {"hello": set(), "ready": set(), "leave": set(left)}

    def missing(self, kind: str) -> list[Address]:
        """Return the units that have not sent ``kind`` yet."""
        return sorted(self._missing[kind])

    def handle(self, message: Message) -> list[Message]:
        """Count a unit; after the last one, return the messages to those that wait."""
        self._missing[message.kind].discard(message.src)
        self._present[message.kind].add(message.src)
        answers = self._answers(message.kind)
        # a server that joins after all workers have left is to end, too
        return answers + self._answers("leave") if message.kind == "hello" else answers

    def _answers(self, kind: str) -> list[Message]:
        if self._missing[kind] or not self._present[kind]:
            return []
        waiting = self._servers
        if kind != "leave":
            waiting = sorted(self._present[kind])
            self._present[kind].clear()
        return [Message(self.KINDS[kind], src=Address.stub(0), dst=unit) for unit in waiting]

    def replace(self, units: Iterable[Address], left: Iterable[Address] = ()) -> list[Message]:
        """Expect units again, which start anew; return the messages to those that need not wait any more.

        Parameters
        ----------
        units : iterable of Address
            Units of the processes that are replaced, without those in ``left``.
        left : iterable of Address
            Workers that are done; nobody waits for them.
        """
        units, left = set(units), set(left)
        workers = {unit for unit in units if unit.kind == "worker"}
        for kind, again in {"hello": units, "ready": workers, "leave": workers}.items():
            self._missing[kind] = (self._missing[kind] | again) - left
            self._present[kind] -= again
        self._present["leave"] |= left
        return [answer for kind in self.KINDS for answer in self._answers(kind)]
