"""A transport under test, with queues for what comes in and who is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.comm.transport import Transport

__all__ = ["TIMEOUT_S", "TOKEN", "End", "end", "transport_threads", "update"]

TIMEOUT_S = 240
TOKEN = "of the tests"


class End:
    """A transport, with queues for what comes in and who is lost."""

    def __init__(
        self, host: str = "tcp://127.0.0.1", on_message: Callable[[Message], None] | None = None, **given: Any
    ):
        self.messages: SimpleQueue[Message] = SimpleQueue()
        self.lost: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self.transport = Transport(
            host,
            on_message or self.messages.put,
            lambda address, reason: self.lost.put((address, reason)),
            **{"job": "job", "incarnation": 0, "process": 0, "token": TOKEN, **given},
        )
        self.address = self.transport.address

    def send(self, address: str, message: Message) -> None:
        """Send a message."""
        self.transport.send(address, message)

    def get(self) -> Message:
        """Return the next message."""
        return self.messages.get(timeout=TIMEOUT_S)

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()


def end(stack: ExitStack, **given: Any) -> End:
    """Open a transport that is closed with the stack."""
    opened = End(**given)
    stack.callback(opened.close)
    return opened


def update(step: int, array: np.ndarray | None = None, slice: int = 0) -> Message:
    """Return a message of a worker with an array."""
    arrays = () if array is None else (array,)
    return Message("update", Address.worker(0, 0), Address.server(0, 0), slice=slice, step=step, arrays=arrays)


def transport_threads() -> set[threading.Thread]:
    """Return the threads of transports that run now. Those of other libraries and of earlier tests come and go."""
    return {thread for thread in threading.enumerate() if thread.name == "transport"}
