"""Channel: the messages that a worker sends and waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from singa_dask.comm import Address, Message
from singa_dask.errors import Aborted
from singa_dask.gate import Gate

Handler = Callable[[Message], None]


class Channel:
    """Sends the messages of one worker, and receives those in its inbox.

    A message that comes while another kind is waited for goes to the handler of its kind.

    Parameters
    ----------
    address : Address
        The worker.
    post : callable
        Delivers a message.
    inbox : SimpleQueue of Message
    gate : Gate
        Of the worker, where it says what it waits for.

    Attributes
    ----------
    post : callable
    """

    def __init__(
        self, address: Address, post: Callable[[Message], None], inbox: SimpleQueue[Message], gate: Gate
    ) -> None:
        self.address = address
        self.post = post
        self._inbox = inbox
        self._gate = gate
        self._handlers: dict[str, Handler] = {"abort": _abort}

    def on(self, kind: str, handler: Handler) -> None:
        """Set the handler of a kind of message."""
        self._handlers[kind] = handler

    def send(self, kind: str, to: Address, **fields: Any) -> None:
        """Send a message. Never waits."""
        self.post(Message(kind, src=self.address, dst=to, **fields))

    def put(self, message: Message) -> None:
        """Put a message in the inbox; called from other threads."""
        self._inbox.put(message)

    def wait_for(self, kind: str) -> Message:
        """Return the next message of a kind, once it is there.

        Raises
        ------
        Aborted
            Another unit failed.
        """
        while (message := self._next(f"message {kind!r}")).kind != kind:
            self._handlers[message.kind](message)
        return message

    def receive(self, what: str, timeout_s: float | None = None) -> None:
        """Wait for a message, with ``timeout_s`` for no longer than that, and hand it to its handler.

        Parameters
        ----------
        what : str
            What is waited for, for people.
        timeout_s : float, optional

        Raises
        ------
        Aborted
            Another unit failed.
        """
        try:
            message = self._next(what, timeout_s)
        except Empty:
            return
        self._handlers[message.kind](message)

    def _next(self, what: str, timeout_s: float | None = None) -> Message:
        self._gate.waiting_for = (what, time.monotonic())
        try:
            return self._inbox.get(timeout=timeout_s)
        finally:
            self._gate.waiting_for = None

    def has_messages(self) -> bool:
        """Return whether `receive` would not wait."""
        return not self._inbox.empty()


def _abort(message: Message) -> None:
    raise Aborted(message.info["reason"])
