"""Channel: the messages that one worker sends, and its inbox."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any

from singa_dask.cancellation import Cancellation
from singa_dask.comm.message import Address, Message
from singa_dask.errors import Aborted

Emit = Callable[[dict[str, Any]], "Future[Any] | None"]
"""A function that sends an event to the scheduler, for the user. Any thread may call it.

The event must be serialisable by msgpack. For the event of a snapshot, the function returns a future that is done once
the scheduler has the event. For other events it returns None."""


class Channel:
    """Sends the messages of one worker, and receives messages from its inbox.

    While the worker waits for one kind of message, messages of other kinds are passed to their handlers.

    Parameters
    ----------
    address : Address
        The worker.
    post : callable
        Delivers a message.
    emit : callable
        Sends an event to the scheduler; see `Emit`.
    inbox : SimpleQueue
        Messages to the worker.
    cancellation : Cancellation
        The worker's cancellation, which also records what the worker waits for.
    """

    def __init__(
        self,
        address: Address,
        post: Callable[[Message], None],
        emit: Emit,
        inbox: SimpleQueue[Message],
        cancellation: Cancellation,
    ) -> None:
        self.address = address
        self.post = post
        self.emit = emit
        self._inbox = inbox
        self._cancellation = cancellation
        self._handlers: dict[str, Callable[[Message], None]] = {"abort": _abort}

    def on(self, kind: str, handler: Callable[[Message], None]) -> None:
        """Set the handler of a kind of message."""
        self._handlers[kind] = handler

    def send(self, kind: str, to: Address, **fields: Any) -> None:
        """Send a message without waiting."""
        self.post(Message(kind, src=self.address, dst=to, **fields))

    def put(self, message: Message) -> None:
        """Put a message in the worker's inbox. Other threads call this method."""
        self._inbox.put(message)

    def wait_for(self, kind: str) -> Message:
        """Wait for the next message of this kind, and return it; raise Aborted if another unit fails."""
        while (message := self._next(f"message {kind!r}")).kind != kind:
            self._handlers[message.kind](message)
        return message

    def receive(self, what: str, timeout_s: float | None = None) -> None:
        """Wait for a message of any kind, and handle it; raise Aborted if another unit fails.

        After ``timeout_s`` seconds, return without a message. ``what`` describes the wait in messages to the user.
        """
        try:
            message = self._next(what, timeout_s)
        except Empty:
            return
        self._handlers[message.kind](message)

    def _next(self, what: str, timeout_s: float | None = None) -> Message:
        with self._cancellation.waiting(what):
            return self._inbox.get(timeout=timeout_s)

    def has_messages(self) -> bool:
        """Return whether a message is in the inbox, so that `receive` would return at once."""
        return not self._inbox.empty()


def _abort(message: Message) -> None:
    raise Aborted(message.info["reason"])
