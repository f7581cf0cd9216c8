"""Outbox: send messages to one peer, and keep them until the peer has acknowledged them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from distributed.comm.core import FatalCommClosedError

from singa_dask.comm.greeting import Hello, introduce
from singa_dask.comm.message import Message
from singa_dask.comm.wire import GRACE_S, RefusedError, Wire, connect
from singa_dask.errors import CommError, text_of

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_MIN_TICK_S = 0.25
_SILENT_TICKS = 2
_MIN_FRUITLESS = 3


class _SilentError(Exception):
    """Timeout: the peer acknowledged nothing, and the operating system accepted no bytes."""


class Outbox:
    """Sends the messages to one peer, in order, and reconnects as often as needed.

    A broken connection is replaced immediately if messages are not acknowledged, otherwise with the next message.
    Failed attempts are repeated after pauses of 0.05 s to 1 s. A connection also counts as broken if, for some time,
    the peer has acknowledged nothing and the operating system has accepted no bytes.

    The peer counts as lost in three cases: there is no connection for ``retry_s`` seconds; at least three connections
    in a row break, and no message is acknowledged for ``retry_s`` seconds; or the peer refuses the connection. Messages
    to a lost peer are discarded.

    All methods run in the thread of the event loop.

    Parameters
    ----------
    address : str
        Address at which the peer listens.
    hello : Hello
        The hello that begins each connection.
    on_lost : callable
        Called once with the address and the reason, when the peer counts as lost.
    connect_args : mapping
        Arguments for `singa_dask.comm.wire.connect`.
    timeout_s : float
        Maximum duration of one attempt to connect, including the answer to the hello.
    retry_s : float
        Seconds without a connection or an acknowledgement after which the peer counts as lost.
    shared_bytes : int
        Size of the shared memory of a connection; 0 for no shared memory.
    """

    def __init__(
        self,
        address: str,
        hello: Hello,
        on_lost: Callable[[str, str], None],
        *,
        connect_args: Mapping[str, Any],
        timeout_s: float,
        retry_s: float,
        shared_bytes: int,
    ) -> None:
        self.address = address
        self._hello = hello
        self._shared_bytes = shared_bytes
        self._on_lost = on_lost
        self._connect_args = dict(connect_args)
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._tick_s = max(retry_s / 8, _MIN_TICK_S)
        self._silence_s = _SILENT_TICKS * self._tick_s
        self._loop = asyncio.get_running_loop()
        self._unacknowledged: deque[tuple[int, Message]] = deque()
        self._last = 0
        self._arrived = 0
        self._n_notes = 0
        self._waiting_since = 0.0
        self._is_lost = False
        self._wire: Wire | None = None
        self._needed = asyncio.Event()
        self._opening: asyncio.Task[Wire] | None = None
        self._task = self._loop.create_task(self._run())

    def put(self, message: Message) -> None:
        """Send a message: immediately if there is a connection, else on the next connection."""
        if self._is_lost:
            return
        if not self._unacknowledged:
            self._waiting_since = self._loop.time()
        self._last += 1
        self._unacknowledged.append((self._last, message))
        self._needed.set()
        if self._wire is not None:
            self._write(self._wire, self._last, message)

    def _write(self, wire: Wire, number: int, message: Message) -> None:
        try:
            wire.write(number, message)
        except OSError:
            # the task that reads acknowledgements notices that the connection is closed; the message is then sent again
            pass
        except Exception as error:
            self._lose(f"{message.kind} from {message.src} to {message.dst} cannot be sent: {error!r}")
            self._task.cancel()

    def _lose(self, reason: str) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._unacknowledged.clear()
        try:
            self._on_lost(self.address, reason)
        except Exception:
            logger.exception("%s is lost: %s", self.address, reason)

    async def _run(self) -> None:
        """Connect whenever messages are not acknowledged, and reconnect, until the peer is lost."""
        down_since, pause_s, fruitless, reason = self._loop.time(), _FIRST_PAUSE_S, 0, ""
        while not self._is_lost:
            if not self._unacknowledged:
                self._needed.clear()
                await self._needed.wait()
                down_since, pause_s, fruitless = self._loop.time(), _FIRST_PAUSE_S, 0
            arrived, wire, silence_s = self._arrived, None, 0.0
            try:
                wire = await self._connect(down_since + self._retry_s - self._loop.time())
                await self._exchange(wire)
            except (RefusedError, FatalCommClosedError) as error:
                self._lose(str(error))
            except _SilentError as error:
                reason, silence_s = str(error), self._silence_s
            except Exception as error:
                reason = text_of(error)
            if wire is not None:
                down_since, fruitless = self._loop.time() - silence_s, fruitless + 1
            if self._arrived > arrived:
                pause_s, fruitless = _FIRST_PAUSE_S, 0
            elif self._unacknowledged:
                self._judge(down_since, fruitless, reason)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    def _judge(self, down_since: float, fruitless: int, reason: str) -> None:
        """Declare the peer lost if it has been unreachable for too long."""
        now = self._loop.time()
        if now - down_since >= self._retry_s:
            self._lose(f"no connection for {self._retry_s:g} s: {reason}")
        elif fruitless >= _MIN_FRUITLESS and now - self._waiting_since >= self._retry_s:
            self._lose(f"{fruitless} connections broke, and for {self._retry_s:g} s no message arrived: {reason}")

    async def _connect(self, left_s: float) -> Wire:
        # shield the task: cancelling it in the middle would leave its socket open; close() gives it time to end
        self._opening = self._loop.create_task(self._open(min(self._timeout_s, max(left_s, _FIRST_PAUSE_S))))
        return await asyncio.shield(self._opening)

    async def _open(self, timeout_s: float) -> Wire:
        try:
            return await asyncio.wait_for(self._greet(0.9 * timeout_s), timeout_s)
        except asyncio.TimeoutError as error:  # asyncio.TimeoutError is not TimeoutError in Python 3.10
            raise CommError("it does not answer") from error

    async def _greet(self, timeout_s: float) -> Wire:
        """Connect, and send the hello. The answer acknowledges all messages that the peer has received so far."""
        wire = await connect(self.address, timeout_s, self._connect_args)
        try:
            with wire.offer(self._shared_bytes) as segment:
                self._acknowledge(await introduce(wire, replace(self._hello, segment=segment).pack()))
        except BaseException:
            wire.close()
            raise
        return wire

    async def _exchange(self, wire: Wire) -> None:
        """Send all messages that are not acknowledged; then let `put` write to the connection until it breaks."""
        reading = self._loop.create_task(self._read_notes(wire))
        self._wire = wire
        try:
            for number, message in list(self._unacknowledged):
                self._write(wire, number, message)
            n_silent, before = 0, (-1, -1)  # a peer whose backlog is full is not silent: it repeats its acknowledgement
            while not reading.done():
                await asyncio.wait({reading}, timeout=self._tick_s)
                now = (wire.progress, self._n_notes)
                n_silent = n_silent + 1 if self._unacknowledged and now == before else 0
                before = now
                if n_silent == _SILENT_TICKS:
                    raise _SilentError(f"nothing was acknowledged for {self._silence_s:g} s")
            reading.result()
        finally:
            self._wire = None
            wire.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read_notes(self, wire: Wire) -> None:
        """Read acknowledgements until the connection breaks or the peer refuses the connection."""
        while True:
            frame = await wire.read()
            if frame.header:
                reason = frame.header.decode(errors="replace") if isinstance(frame.header, bytes) else "no reason"
                raise RefusedError(f"the other side refused the connection: {reason}")
            self._n_notes += 1
            self._acknowledge(frame.number)

    def _acknowledge(self, number: int) -> None:
        if not self._arrived <= number <= self._last:
            raise RefusedError(f"it acknowledges message {number}. Expected: {self._arrived} to {self._last}.")
        if number > self._arrived:
            self._arrived, self._waiting_since = number, self._loop.time()
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            self._unacknowledged.popleft()

    async def close(self) -> None:
        """Close the connection, and discard all messages that are not acknowledged."""
        self._is_lost = True
        self._unacknowledged.clear()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._opening is None:
            return
        await asyncio.wait({self._opening}, timeout=GRACE_S)
        self._opening.cancel()
        (wire,) = await asyncio.gather(self._opening, return_exceptions=True)
        if isinstance(wire, Wire):
            wire.close()
