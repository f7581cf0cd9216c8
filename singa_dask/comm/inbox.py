"""Inbox: receive messages of all peers, each message once and in the order of sending."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from singa_dask.comm.backlog import Backlog
from singa_dask.comm.greeting import Hello, read_hello
from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.comm.wire import GRACE_S, Wire, place_of
from singa_dask.errors import CommError

logger = logging.getLogger(__name__)

_ACKNOWLEDGED_EVERY = 256
_ACKNOWLEDGED_BYTES = 8 << 20
_ACKNOWLEDGED_S = 0.25
"""Messages are acknowledged after `_ACKNOWLEDGED_S`, or sooner after `_ACKNOWLEDGED_EVERY` messages or
`_ACKNOWLEDGED_BYTES`.

Frequent acknowledgements are expensive: each costs as much as a small message. But the sender keeps arrays in memory
until they are acknowledged. It considers a peer silent after 0.5 s at the earliest.
"""


@dataclass
class _Stream:
    """The messages that come from one outbox of a peer, perhaps over several connections.

    Attributes
    ----------
    wire : Wire
        The newest connection. Messages on older connections are dropped.
    last : int
        Number of the last received message.
    n_messages, n_bytes : int
        Numbers of received messages, and of their bytes, that are not acknowledged yet.
    timer : TimerHandle or None
        Timer that acknowledges these messages when it ends.
    """

    hello: Hello
    wire: Wire
    last: int = 0
    n_messages: int = 0
    n_bytes: int = 0
    timer: asyncio.TimerHandle | None = None

    def take(self, number: int, n_bytes: int) -> None:
        """Count a received message, and acknowledge it now or after a short time."""
        self.last = number
        self.n_messages += 1
        self.n_bytes += n_bytes
        if self.n_messages >= _ACKNOWLEDGED_EVERY or self.n_bytes >= _ACKNOWLEDGED_BYTES:
            self.acknowledge()
        elif self.timer is None:
            self.timer = asyncio.get_running_loop().call_later(_ACKNOWLEDGED_S, self._acknowledge_late)

    def _acknowledge_late(self) -> None:
        self.timer = None
        if self.n_messages:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge all received messages. If the connection is closed, the next greeting does it."""
        self.n_messages = self.n_bytes = 0
        with contextlib.suppress(OSError):
            self.wire.write_note(self.last)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.wire.close()


class Inbox:
    """Receives messages over the connections to this process, in the thread of the event loop.

    Parameters
    ----------
    hello : Hello
        The hello of this process. Connections from another job, incarnation or protocol are refused.
    on_message : callable
        Called with each message. It must not raise errors.
    receive_buffer : callable or None
        Takes a message without its array; returns the buffer to read the array into, or None for new memory.
    backlog : Backlog
        While the backlog is full, no arrays are read. Senders then get acknowledgements, which show that this process
        is alive.
    timeout_s : float
        Seconds within which a new connection must send its hello.

    Attributes
    ----------
    received_bytes : int
        Bytes of arrays in all received messages.
    room : Event
        To be set when the backlog is no longer full.
    """

    def __init__(
        self,
        hello: Hello,
        on_message: Callable[[Message], None],
        receive_buffer: ReceiveBuffer | None,
        backlog: Backlog,
        timeout_s: float,
    ) -> None:
        self.received_bytes = 0
        self.room = asyncio.Event()
        self._hello = hello
        self._on_message = on_message
        self._receive_buffer = receive_buffer
        self._backlog = backlog
        self._timeout_s = timeout_s
        self._is_closed = False
        self._cut: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._serving: dict[asyncio.Task[None], Wire] = {}

    async def serve(self, wire: Wire) -> None:
        """Receive messages from a new connection until it ends."""
        if self._is_closed:
            wire.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = wire
        try:
            hello = await asyncio.wait_for(read_hello(wire), self._timeout_s)
            await self._greet(hello, wire)
            await self._take(self._streams[hello.stream], wire)
        except (TimeoutError, asyncio.TimeoutError):  # Python 3.10 has both
            logger.warning("closed the connection from %s: no hello in %g s", wire.peer, self._timeout_s)
        except CommError as error:
            logger.warning("closed the connection from %s: %s", wire.peer, error)
        except OSError:
            pass  # the peer connects again if it has messages that were not acknowledged
        except Exception:
            logger.warning("closed the connection from %s", wire.peer, exc_info=True)
        finally:
            wire.close()
            del self._serving[task]

    async def _greet(self, hello: Hello, wire: Wire) -> None:
        """Answer a hello with the number of the last received message, or with a refusal."""
        refusal = self._hello.refusal(hello)
        if hello.address in self._cut:
            refusal = f"process {hello.process} at {place_of(hello.address)} was replaced by another."
        if refusal:
            wire.write_note(0, refusal.encode())
            await _drained([wire])
            raise CommError(refusal)
        stream = self._streams.setdefault(hello.stream, _Stream(hello, wire))
        if stream.wire is not wire:
            stream.wire.close()
            stream.wire = wire
        stream.n_messages = stream.n_bytes = 0
        if hello.segment:
            wire.take(hello.segment)
        wire.write_note(stream.last)

    async def _take(self, stream: _Stream, wire: Wire) -> None:
        """Receive the messages of a stream until a newer connection replaces this one."""
        while True:
            frame = await wire.read()
            if stream.wire is not wire:
                return
            if frame.number <= stream.last:
                await wire.skip(frame)
                continue
            if frame.number > stream.last + 1:
                raise CommError(f"message {frame.number} arrived. Expected: message {stream.last + 1}.")
            if frame.n_bytes or frame.arrays:
                await self._wait_for_room(stream)
                if stream.wire is not wire:
                    return
            try:
                message = await wire.read_message(frame, self._receive_buffer)
            except CommError as error:  # refuse the connection: a repeated message would fail in the same way
                wire.write_note(stream.last, str(error).encode())
                await _drained([wire])
                raise
            if stream.wire is not wire:
                return
            n_bytes = message.n_bytes
            stream.take(frame.number, n_bytes)
            self.received_bytes += n_bytes
            self._on_message(message)
            del message  # free the memory of this message before receiving the next one

    async def _wait_for_room(self, stream: _Stream) -> None:
        while self._backlog.is_full:
            self.room.clear()
            try:
                await asyncio.wait_for(self.room.wait(), _ACKNOWLEDGED_S)
            except asyncio.TimeoutError:  # asyncio.TimeoutError is not TimeoutError in Python 3.10
                stream.acknowledge()

    def cut(self, address: str) -> None:
        """Close the connections from the process at ``address``, and refuse new ones."""
        self._cut.add(address)
        for name in [name for name, stream in self._streams.items() if stream.hello.address == address]:
            self._streams.pop(name).close()

    async def close(self) -> None:
        """Acknowledge all received messages, and close every connection."""
        self._is_closed = True
        for stream in self._streams.values():
            if stream.n_messages:
                stream.acknowledge()
        await _drained(self._serving.values())
        for stream in self._streams.values():
            stream.close()
        for task, wire in list(self._serving.items()):
            wire.close()
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


async def _drained(wires: Iterable[Wire]) -> None:
    """Wait at most `GRACE_S` until connections have flushed their buffers."""
    drains = [asyncio.ensure_future(wire.drain()) for wire in wires]
    if drains:
        await asyncio.wait(drains, timeout=GRACE_S)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)
