"""Transport: sends messages to other processes, and receives theirs, each exactly once and in order.

It runs a private asyncio event loop in a thread of its own, so that parameter traffic and Dask's heartbeats do not
delay each other. It listens with the scheme of the Dask worker, by ``distributed.comm``, see `singa_dask.comm.wire`.

Each process connects to those that it sends to. A connection begins with a hello, which has the token of the job, its
life, the process, and the id of the outbox, see `singa_dask.comm.greeting`. A receiver of another job or life refuses
it, before any memory is written. It answers any other with the number of the last message that it has had from this
outbox. The sender then sends those after it, and goes on with new ones. The receiver acknowledges what it has had after
0.25 s, or sooner after many messages or bytes; the sender keeps what is not acknowledged. So after a broken connection
exactly those messages are sent again that have not arrived. The receiver drops a message that it has had, before it
asks for a receive buffer, and closes the connection when one is missing, which makes the sender connect again.

Messages are sent, and sent again, from the memory of their arrays. This is safe although the sender may change an
array once the message was answered. Who has answered has had the whole message, and its process has counted it before
it was delivered. Thus the number in the next hello's answer is at least that of the message, and it is not sent again.
A message that is sent again was not delivered, so it has no answer, and its arrays are as they were. It may have been
received in part, and have changed part of a receive buffer: the second time the buffer is overwritten whole, and only
then the message is delivered. What still comes on the old connection is forgotten once there is a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from distributed.comm.core import FatalCommClosedError

from singa_dask.comm.greeting import Hello, introduce, read_hello
from singa_dask.comm.message import Backlog, Message, ReceiveBuffer
from singa_dask.comm.wire import ANY_PORT, Endpoint, Listener, RefusedError, Wire, connect, listen, place_of
from singa_dask.errors import CommError, text_of

logger = logging.getLogger(__name__)

# Inbox: takes the messages of all peers, each once and in its sender's order.


_ACKNOWLEDGED_EVERY = 256
_ACKNOWLEDGED_BYTES = 8 << 20
_ACKNOWLEDGED_S = 0.25
"""A message is acknowledged after this time, or sooner: when so many messages or bytes are not.

An acknowledgement costs as much as a small message, but until then the sender keeps the arrays in memory. It judges a
peer silent after 0.5 s at the earliest.
"""
_GRACE_S = 0.1
"""Time for what was written, and for a socket that is being connected, when the transport is closed."""


@dataclass
class _Stream:
    """The messages of one outbox of a peer.

    Attributes
    ----------
    hello : Hello
    wire : Wire
        The newest connection; what comes on others is forgotten.
    last : int
        Number of the last message that was taken.
    n_messages, n_bytes : int
        Messages that are not acknowledged.
    timer : TimerHandle or None
        Acknowledges them.
    """

    hello: Hello
    wire: Wire
    last: int = 0
    n_messages: int = 0
    n_bytes: int = 0
    timer: asyncio.TimerHandle | None = None

    def take(self, number: int, n_bytes: int) -> None:
        """Count a message that has come, and acknowledge it now or soon."""
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
        """Tell the sender which messages have come; the next connection does so if this one is closed."""
        self.n_messages = self.n_bytes = 0
        with contextlib.suppress(OSError):
            self.wire.write_note(self.last)

    def close(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.wire.close()


class Inbox:
    """Takes the messages that peers send over connections to this process.

    All methods are called in the thread of the event loop.

    Parameters
    ----------
    hello : Hello
        Of this process: connections from another job, life or protocol are refused.
    on_message : callable
        Called with each message.
    on_error : callable
        Called with the address of a peer and the reason when ``on_message`` has failed.
    receive_buffer : callable or None
        (message without its array) -> buffer that the array is read into, or None.
    backlog : Backlog
        Arrays are read while it is not full. Senders are told meanwhile that this process lives.
    timeout_s : float
        Time of a new connection to say its hello.

    Attributes
    ----------
    room : Event
        To be set when the backlog is not full any more.
    """

    def __init__(
        self,
        hello: Hello,
        on_message: Callable[[Message], None],
        on_error: Callable[[str, str], None],
        receive_buffer: ReceiveBuffer | None,
        backlog: Backlog,
        timeout_s: float,
    ) -> None:
        self.received_bytes = 0
        self.room = asyncio.Event()
        self._hello = hello
        self._on_message = on_message
        self._on_error = on_error
        self._receive_buffer = receive_buffer
        self._backlog = backlog
        self._timeout_s = timeout_s
        self._is_closed = False
        self._cut: set[str] = set()
        self._streams: dict[str, _Stream] = {}
        self._serving: dict[asyncio.Task[None], Wire] = {}

    async def serve(self, wire: Wire) -> None:
        """Take messages from a new connection until it ends."""
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
        except (TimeoutError, asyncio.TimeoutError):  # two classes in Python 3.10
            logger.warning("closed the connection from %s: no hello in %g s", wire.peer, self._timeout_s)
        except CommError as error:
            logger.warning("closed the connection from %s: %s", wire.peer, error)
        except OSError:
            pass  # if something has not arrived, the peer connects again
        except Exception:
            logger.warning("closed the connection from %s", wire.peer, exc_info=True)
        finally:
            wire.close()
            del self._serving[task]

    async def _greet(self, hello: Hello, wire: Wire) -> None:
        """Tell the sender which of its messages was the last that has come, or refuse it."""
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
        """Take the messages of a stream until a newer connection carries it on."""
        while True:
            frame = await wire.read()
            if stream.wire is not wire:
                return
            if frame.number <= stream.last:
                await wire.skip(frame)
                continue
            if frame.number > stream.last + 1:
                raise CommError(f"message {frame.number} has come. Expected: {stream.last + 1}.")
            if frame.n_bytes or frame.arrays:
                await self._wait_for_room(stream)
                if stream.wire is not wire:
                    return
            try:
                message = await wire.read_message(frame, self._receive_buffer)
            except CommError as error:  # the same frame again would be no better
                wire.write_note(stream.last, str(error).encode())
                await _drained([wire])
                raise
            if stream.wire is not wire:
                return
            n_bytes = message.n_bytes
            stream.take(frame.number, n_bytes)
            self.received_bytes += n_bytes
            self._deliver(stream.hello, message)
            del message  # or its memory would not be free before the next one comes

    async def _wait_for_room(self, stream: _Stream) -> None:
        while self._backlog.is_full:
            self.room.clear()
            try:
                await asyncio.wait_for(self.room.wait(), _ACKNOWLEDGED_S)
            except asyncio.TimeoutError:  # another class in Python 3.10
                stream.acknowledge()

    def _deliver(self, hello: Hello, message: Message) -> None:
        try:
            self._on_message(message)
        except Exception as error:
            logger.exception("%s from %s to %s", message.kind, message.src, message.dst)
            self._on_error(hello.address, f"its {message.kind} from {message.src} to {message.dst} failed: {error!r}")

    def cut(self, address: str) -> None:
        """Take nothing more from the process at ``address``."""
        self._cut.add(address)
        for name in [name for name, stream in self._streams.items() if stream.hello.address == address]:
            self._streams.pop(name).close()

    async def close(self) -> None:
        """Acknowledge what has come, and close every connection."""
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
    """Give wires a short time to hand what was written to the system."""
    drains = [asyncio.ensure_future(wire.drain()) for wire in wires]
    if drains:
        await asyncio.wait(drains, timeout=_GRACE_S)
        for drain in drains:
            drain.cancel()
        await asyncio.gather(*drains, return_exceptions=True)


# Outbox: the messages to one peer, kept until it has acknowledged them.


_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 1.0
_MIN_TICK_S = 0.25
_SILENT_TICKS = 2
_MIN_FRUITLESS = 3


class _SilentError(Exception):
    """For some time nothing was acknowledged, and the system took no bytes."""


class Outbox:
    """Sends the messages to one peer, in order, over as many connections as that takes.

    A connection that breaks while something is not acknowledged is replaced at once, one that breaks later is
    replaced with the next message; between attempts in vain there are pauses, of 0.05 s at first, then of up to 1 s. A
    connection is broken, too, when for some time nothing was acknowledged and the system took no bytes: the peer has
    stopped, or the way to it is cut.

    The peer is lost when there was no connection for ``retry_s``; when three connections in turn ended before
    another message had arrived, and ``retry_s`` have passed; or when it refuses the connection. What is not
    acknowledged is then discarded, and so is what is put later.

    All methods are called in the thread of the event loop.

    Parameters
    ----------
    address : str
        Where the peer listens.
    hello : Hello
        Opens each connection.
    on_lost : callable
        Called once, with the address and the reason, when the peer is lost.
    connect_args : mapping
        For `singa_dask.comm.wire.connect`.
    timeout_s : float
        Time for one connection, until the peer has answered the hello.
    retry_s : float
    shared_bytes : int
        Of the shared memory of a connection; 0 for none.
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
        """Send a message, at once if there is a connection."""
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
            pass  # whoever reads acknowledgements finds that the connection is closed; the next one brings the message
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

    # -- connections -------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Keep a connection while there is something to send, until the peer is lost."""
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
        """Lose the peer if it is time."""
        now = self._loop.time()
        if now - down_since >= self._retry_s:
            self._lose(f"no connection for {self._retry_s:g} s: {reason}")
        elif fruitless >= _MIN_FRUITLESS and now - self._waiting_since >= self._retry_s:
            self._lose(f"{fruitless} connections broke, and for {self._retry_s:g} s no message arrived: {reason}")

    async def _connect(self, left_s: float) -> Wire:
        # shielded, as a cancelled attempt would leave its socket open; close() gives it time
        self._opening = self._loop.create_task(self._open(min(self._timeout_s, max(left_s, _FIRST_PAUSE_S))))
        return await asyncio.shield(self._opening)

    async def _open(self, timeout_s: float) -> Wire:
        try:
            return await asyncio.wait_for(self._greet(0.9 * timeout_s), timeout_s)
        except asyncio.TimeoutError as error:  # another class in Python 3.10
            raise CommError("it does not answer") from error

    async def _greet(self, timeout_s: float) -> Wire:
        """Connect, say hello, and take the answer: how many messages the peer has had."""
        wire = await connect(self.address, timeout_s, self._connect_args)
        try:
            with wire.offer(self._shared_bytes) as segment:
                self._acknowledge(await introduce(wire, replace(self._hello, segment=segment).pack()))
        except BaseException:
            wire.close()
            raise
        return wire

    async def _exchange(self, wire: Wire) -> None:
        """Send what has not arrived, then let `put` write, until the connection breaks."""
        reading = self._loop.create_task(self._read_notes(wire))
        self._wire = wire
        try:
            for number, message in list(self._unacknowledged):
                self._write(wire, number, message)
            n_silent, before = 0, (-1, -1)  # a peer that has no room for more repeats its last note
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
        """Read acknowledgements, until the connection breaks or the peer refuses it."""
        while True:
            frame = await wire.read()
            if frame.header:
                reason = frame.header.decode(errors="replace") if isinstance(frame.header, bytes) else "no reason"
                raise RefusedError(f"it has refused the connection: {reason}")
            self._n_notes += 1
            self._acknowledge(frame.number)

    def _acknowledge(self, number: int) -> None:
        if not self._arrived <= number <= self._last:
            raise RefusedError(f"it acknowledges message {number}. Expected: {self._arrived} to {self._last}.")
        if number > self._arrived:
            self._arrived, self._waiting_since = number, self._loop.time()
        while self._unacknowledged and self._unacknowledged[0][0] <= number:
            self._unacknowledged.popleft()

    # -- the end -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection, and discard what is not acknowledged."""
        self._is_lost = True
        self._unacknowledged.clear()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._opening is None:
            return
        await asyncio.wait({self._opening}, timeout=_GRACE_S)
        self._opening.cancel()
        (wire,) = await asyncio.gather(self._opening, return_exceptions=True)
        if isinstance(wire, Wire):
            wire.close()


_CLOSE_S = 5.0


class Transport:
    """The endpoint of one process, in one life of a job.

    Parameters
    ----------
    host : str
        Scheme and host of the Dask worker, e.g. ``"tcp://10.0.0.7"``.
    on_message : callable
        Called with each incoming message, in the thread of the transport; must not block.
    on_lost : callable
        Called with the address of a peer and the reason, once for each peer that is lost: it could not be reached, or
        acknowledged nothing, for ``retry_s``, or it has refused the connection. Called too when ``on_message`` has
        raised for a message of the peer.
    job : str
        Id of the job.
    life : int
        Life of the job that this process belongs to.
    process : int
        Index of this process in the job.
    token : str
        Of the job; all its processes have the same.
    receive_buffer : callable, optional
        (message without its array) -> buffer that the array is read into, or None. Called in the thread of the
        transport. A sender may reuse a buffer only after its last message was answered.
    backlog : Backlog, optional
        While it is full no array is read.
    interface : str
        Where to listen if not on ``host``; see `Endpoint.of`.
    ports : sequence of int
        To choose from.
    listen_args, connect_args : mapping
        Of ``distributed.Security``, for TLS.
    timeout_s : float
        Time for one attempt to connect, until the peer has answered the hello.
    retry_s : float
        Time after which a peer that cannot be reached is lost. Connections that break sooner are made again, unless
        all messages are acknowledged: then with the next message.
    shared_bytes : int
        Of the memory that a connection to a process of this host shares with it, for arrays; 0 for none.

    Attributes
    ----------
    address : str
        Where other processes reach this one, see `place_of`, and a mark: a process that has the same port later has
        another address.
    sent_bytes : int
        Bytes of arrays in messages to other processes, each counted once.
    """

    def __init__(
        self,
        host: str,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str, str], None],
        *,
        job: str,
        life: int,
        process: int,
        token: str,
        receive_buffer: ReceiveBuffer | None = None,
        backlog: Backlog | None = None,
        interface: str = "",
        ports: Sequence[int] = ANY_PORT,
        listen_args: Mapping[str, Any] | None = None,
        connect_args: Mapping[str, Any] | None = None,
        timeout_s: float = 3.0,
        retry_s: float = 10.0,
        shared_bytes: int = 0,
        name: str = "transport",
    ) -> None:
        self.sent_bytes = 0
        self._on_lost = on_lost
        self._connect_args = dict(connect_args or {})
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._shared_bytes = shared_bytes
        self._hello = Hello(token, job, life, process, address="")
        backlog = backlog or Backlog()
        self._inbox = Inbox(self._hello, on_message, self._lose, receive_buffer, backlog, timeout_s)
        backlog.on_room = self._make_room
        self._outboxes: dict[str, Outbox] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._listener: Listener | None = None
        endpoint = Endpoint.of(host, interface, ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            self.address = f"{self._call(self._listen(endpoint, listen_args or {}))}#{uuid.uuid4().hex[:8]}"
        except BaseException:
            self.close()
            raise
        self._hello = replace(self._hello, address=self.address)

    @property
    def received_bytes(self) -> int:
        """Bytes of arrays in messages from other processes, each counted once."""
        return self._inbox.received_bytes

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        # some comms resolve host names in threads
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(_CLOSE_S)

    async def _listen(self, endpoint: Endpoint, listen_args: Mapping[str, Any]) -> str:
        self._listener = await listen(endpoint, self._inbox.serve, listen_args)
        return self._listener.address

    def send(self, address: str, message: Message) -> None:
        """Send ``message`` to the process at ``address``. Never blocks; the messages of one sender keep their order.

        Do not change the arrays until the peer has answered. Messages to a lost peer are discarded.
        """
        if self._closed:
            return
        if address.startswith("inproc"):
            message = _copied(message)
        is_own = threading.current_thread() is self._thread  # which need not be woken
        with contextlib.suppress(RuntimeError):  # the loop was closed a moment ago
            (self._loop.call_soon if is_own else self._loop.call_soon_threadsafe)(self._put, address, message)

    def _put(self, address: str, message: Message) -> None:
        if self._closed:
            return
        outbox = self._outboxes.get(address)
        if outbox is None:
            outbox = self._outboxes[address] = Outbox(
                address,
                replace(self._hello, stream=uuid.uuid4().hex),
                self._lose,
                connect_args=self._connect_args,
                timeout_s=self._timeout_s,
                retry_s=self._retry_s,
                shared_bytes=self._shared_bytes,
            )
        self.sent_bytes += message.n_bytes
        outbox.put(message)

    def _make_room(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._inbox.room.set)

    def _lose(self, address: str, reason: str) -> None:
        if not self._closed:
            self._on_lost(address, reason)

    def cut(self, address: str) -> None:
        """Forget the process at ``address`` for good, which another one replaces: refuse what it sends, too.

        Closes the connection to it, and discards what it has not acknowledged. It is not reported as lost.
        """
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cut, address)

    def _cut(self, address: str) -> None:
        if self._closed:
            return
        if outbox := self._outboxes.pop(address, None):
            task = self._loop.create_task(outbox.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._inbox.cut(address)

    def close(self) -> None:
        """Close the port and every connection, and end the thread. Can be called twice.

        Messages that were not handed to the system are discarded.
        """
        if not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):
                self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            logger.warning("%s does not end: a callback blocks it", self._thread.name)

    async def _close(self) -> None:
        if self._listener is not None:
            await self._listener.stop()
        ends = [self._inbox.close(), *(outbox.close() for outbox in self._outboxes.values()), *self._closing]
        for end in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(end, Exception):
                logger.warning("closing %s: %r", self.address, end)


def _copied(message: Message) -> Message:
    parts = tuple(map(_copied, message.parts))
    return replace(message, arrays=tuple(map(np.array, message.arrays)), parts=parts)
