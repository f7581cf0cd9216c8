"""BarrierCoordinator: the barriers at which the units of a job wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from singa_dask.comm.message import Address, Message
from singa_dask.errors import DataError
from singa_dask.runtime.planning.layout import Rejoin


class BarrierCoordinator:
    """Counts the units of a job at three barriers. The coordinator is a state machine without I/O.

    - ``hello``: all units start when every unit has sent ``hello``.
    - ``ready``: all workers train when every worker has its params and has sent ``ready``.
    - ``leave``: all servers end when every worker has sent ``leave``.

    Units that join a running job wait only for each other. A repeated message counts once. If no unit is missing, the
    coordinator answers a repeated message again.

    With ``ready``, a worker sends facts that must be equal on all workers: versions of remote files, and digests of
    facts about the records, e.g. class names. The coordinator compares these facts with the facts in the first
    ``ready``. The answer ``go`` lists the facts that differ, with the value and the host of the first worker. If a
    ``leave`` has an ``error``, the job ends with this error once all workers have left.

    Parameters
    ----------
    process_of : mapping of Address to int
        Process of each unit.
    rejoin : Rejoin, optional
        Set if this process joins a running job.
    """

    KINDS: ClassVar[Mapping[str, str]] = {"hello": "start", "ready": "go", "leave": "stop"}

    def __init__(self, process_of: Mapping[Address, int], rejoin: Rejoin | None = None) -> None:
        units = set(process_of)
        workers = {unit for unit in units if unit.kind == "worker"}
        left, running = (rejoin.left, rejoin.running) if rejoin else (frozenset[Address](), frozenset[Address]())
        starting = units - running - left
        self._processes = sorted({*process_of.values()})
        self._facts: dict[str, list[str]] = {}
        self._differing: dict[Address, dict[str, list[str]]] = {}
        self._error = ""
        self._servers = sorted(units - workers)
        self._missing = {"hello": starting, "ready": starting & workers, "leave": workers - left}
        self._present: dict[str, set[Address]] = {"hello": set(), "ready": set(), "leave": set(left)}

    def missing(self, kind: str) -> list[Address]:
        """Return the units that have not sent the message ``kind`` yet."""
        return sorted(self._missing[kind])

    def handle(self, message: Message) -> list[Message]:
        """Count the sender of a message; if no unit is missing any more, return the messages to waiting units."""
        self._missing[message.kind].discard(message.src)
        self._present[message.kind].add(message.src)
        if message.kind == "ready":
            self._differing[message.src] = self._compare(message.info["host"], message.info["facts"])
        elif message.kind == "leave" and message.info["error"] and not self._error:
            self._error = f"{message.src}: {message.info['error']}"
        answers = self._answers(message.kind)
        # a server that joins after all workers have left must end, too
        return answers + self._answers("leave") if message.kind == "hello" else answers

    def _compare(self, host: str, facts: Mapping[str, str]) -> dict[str, list[str]]:
        """Return the facts that differ from the facts received first, with the first value and its host."""
        for what, value in facts.items():
            self._facts.setdefault(what, [value, host])
        return {what: self._facts[what] for what, value in facts.items() if self._facts[what][0] != value}

    def _answers(self, kind: str) -> list[Message]:
        if self._missing[kind] or not self._present[kind]:
            return []
        waiting = self._servers
        if kind != "leave":
            waiting = sorted(self._present[kind])
            self._present[kind].clear()
        elif self._error:
            info: dict[str, Any] = {"reason": self._error, "exit_code": DataError.exit_code, "expected": True}
            return [Message("abort", Address.stub(0), Address.stub(process), info=info) for process in self._processes]
        return [
            Message(self.KINDS[kind], Address.stub(0), unit, info={"differing": self._differing.pop(unit, {})})
            for unit in waiting
        ]

    def replace(self, units: Iterable[Address], left: Iterable[Address] = ()) -> list[Message]:
        """Expect messages of restarting units again; return messages to units that no longer have to wait.

        Parameters
        ----------
        units : iterable of Address
            Units that restart.
        left : iterable of Address
            Workers that have finished; no messages of them are expected. ``units`` does not contain them.
        """
        units, left = set(units), set(left)
        workers = {unit for unit in units if unit.kind == "worker"}
        for kind, again in {"hello": units, "ready": workers, "leave": workers}.items():
            self._missing[kind] = (self._missing[kind] | again) - left
            self._present[kind] -= again
        self._present["leave"] |= left
        return [answer for kind in self.KINDS for answer in self._answers(kind)]
