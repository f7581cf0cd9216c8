"""Mailbox: the arrays that a worker exchanges with other workers of its group."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message


class Mailbox:
    """The `Exchange` of a worker: sends arrays to workers of its group, and receives arrays from them.

    Parameters
    ----------
    owner : Address
        The worker.
    post : callable
        Delivers a message.

    Attributes
    ----------
    wait_s : float
        Seconds that the worker has waited for other workers of its group.
    """

    def __init__(self, owner: Address, post: Callable[[Message], None], cancellation: Cancellation) -> None:
        self.owner = owner
        self.cancellation = cancellation
        self.wait_s = 0.0
        self._post = post
        self._arrived: dict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def send(self, worker: int, key: str, arrays: Sequence[np.ndarray], names: Sequence[str]) -> None:
        """Send arrays to another worker of the group without waiting."""
        to, info = Address.worker(self.owner.group, worker), {"key": key, "names": list(names)}
        self._post(Message("bridge", src=self.owner, dst=to, info=info, arrays=tuple(arrays)))

    def put(self, message: Message) -> None:
        """Add arrays that have arrived from another worker. Any thread may call this method."""
        with self.cancellation.condition:
            self._arrived[message.info["key"]].append(dict(zip(message.info["names"], message.arrays, strict=True)))
            self.cancellation.condition.notify_all()

    def has(self, key: str) -> bool:
        """Return whether arrays with this key have arrived, so that `receive` would return at once."""
        # use get(): without the lock, [] could replace a queue that `put` adds at the same moment
        return bool(self._arrived.get(key))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true; raise Aborted if the job ends meanwhile.

        The condition is checked whenever arrays arrive. ``what`` describes the wait in messages to the user.
        """
        started = time.perf_counter()
        self.cancellation.wait(condition, what)
        self.wait_s += time.perf_counter() - started

    def receive(self, key: str) -> dict[str, Any]:
        """Wait for arrays with this key, and return the oldest of them by name; raise Aborted if the job ends."""
        if not self.has(key):
            self.wait(lambda: self.has(key), f"bridge {key}")
        return self._arrived[key].popleft()
