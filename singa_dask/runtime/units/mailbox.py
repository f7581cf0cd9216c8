"""Mailbox: exchanges arrays between the bridges of a worker and those of other workers of its group."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.comm import Address, Message
from singa_dask.gate import Gate

__all__ = ["Mailbox"]


class Mailbox:
    """The `Exchange` of a worker.

    Parameters
    ----------
    owner : Address
        The worker.
    post : callable
        Delivers a message.
    gate : Gate
        Of the worker; closing it ends every wait.

    Attributes
    ----------
    wait_s : float
        Time that the worker has waited for others of its group, in seconds.
    """

    def __init__(self, owner: Address, post: Callable[[Message], None], gate: Gate) -> None:
        self.owner = owner
        self.gate = gate
        self.wait_s = 0.0
        self._post = post
        self._arrived: dict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def send(self, worker: int, key: str, arrays: Sequence[np.ndarray], names: Sequence[str]) -> None:
        """Send arrays to another worker of the group. Never waits."""
        to, info = Address.worker(self.owner.group, worker), {"key": key, "names": list(names)}
        self._post(Message("bridge", src=self.owner, dst=to, info=info, arrays=tuple(arrays)))

    def put(self, message: Message) -> None:
        """Add arrays that another worker has sent; called from any thread."""
        with self.gate.condition:
            self._arrived[message.info["key"]].append(dict(zip(message.info["names"], message.arrays, strict=True)))
            self.gate.condition.notify_all()

    def has(self, key: str) -> bool:
        """Return whether `receive` would not wait."""
        # without the lock: it may not add the key, or the queue that `put` adds at the same moment could be replaced
        return bool(self._arrived.get(key))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true; it is checked whenever something arrives.

        Parameters
        ----------
        condition : callable
        what : str
            What is waited for, for people.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        started = time.perf_counter()
        self.gate.wait(condition, what)
        self.wait_s += time.perf_counter() - started

    def receive(self, key: str) -> dict[str, Any]:
        """Wait for the oldest arrays with a key, and return them by name.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        if not self.has(key):
            self.wait(lambda: self.has(key), f"bridge {key}")
        return self._arrived[key].popleft()
