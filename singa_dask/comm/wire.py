"""Wire: send and receive numbered frames over a connection to another process.

A frame has a number, a header, and the bytes of arrays. The frame of a message has the message's sequence number and
the result of `Message.header`. A note is a frame without arrays. It is a greeting, an acknowledgement (with an empty
header), or a refusal (with the reason as header).

``distributed.comm`` provides connections and listeners for tcp, tls, ws, ucxx and inproc. With tcp and tls, frames are
written to the byte stream, and arrays are read directly into receive buffers. Between processes of one host, arrays go
through shared memory; see `singa_dask.comm.shared`. The other comms carry whole objects.

`distributed` may unpickle such objects, and also data that arrives before the first frame. As for Dask itself, use
plain tcp only in trusted networks.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, TypeAlias

import msgpack
import numpy as np
from distributed.comm import core
from distributed.comm.core import Comm
from distributed.comm.inproc import InProc
from distributed.comm.tcp import TCP
from distributed.protocol.serialize import to_serialize

from singa_dask.comm.endpoint import Endpoint
from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.comm.shared import Offer, Segment, take
from singa_dask.errors import CommError

MARK = b"SNG3"
MAX_HEADER = 64 << 20
GRACE_S = 0.1
"""Seconds that buffers and pending connections get to finish when the transport is closed."""
NOT_OURS = "a message that is not of this protocol"


class RefusedError(Exception):
    """The peer has refused the connection, or cannot continue it, so that a retry would not help."""


class Frame(NamedTuple):
    """The start of a frame, before its arrays are read.

    Attributes
    ----------
    number : int
        Sequence number of a message, or number of an acknowledged message.
    header : bytes or Message
        The header; on a connection within one process, the message itself.
    n_bytes : int
        Number of bytes of arrays.
    arrays : list
        The arrays as bytes, if they arrived together with the header.
    is_shared : bool
        Whether the arrays are in shared memory.
    """

    number: int
    header: bytes | Message
    n_bytes: int
    arrays: list[Any]
    is_shared: bool = False


class Wire(ABC):
    """Writes and reads the frames of one connection. Writing never waits."""

    peer: str
    """Address of the other end."""

    @property
    @abstractmethod
    def progress(self) -> int:
        """A number that rises while the operating system accepts written bytes."""

    @contextmanager
    def offer(self, size: int) -> Iterator[str]:
        """Offer ``size`` bytes of shared memory for arrays; provide its name, empty if there is none.

        If the peer has taken the memory by the end of the context, it is used.
        """
        yield ""

    def take(self, name: str) -> None:
        """Take the shared memory that the peer has offered, if possible."""
        return None

    @abstractmethod
    def write(self, number: int, message: Message) -> None:
        """Write a message. Its arrays must not change until it is acknowledged."""

    @abstractmethod
    def write_note(self, number: int, header: bytes = b"") -> None:
        """Write a frame without arrays."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until the operating system has accepted all written bytes."""

    @abstractmethod
    async def read(self, max_header: int = MAX_HEADER) -> Frame:
        """Read the start of the next frame. A header of more than ``max_header`` bytes is an error."""

    @abstractmethod
    async def skip(self, frame: Frame) -> None:
        """Read and drop the arrays of a frame."""

    @abstractmethod
    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        """Read the arrays of a message, into the buffers that ``receive_buffer`` returns; return the message."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection immediately."""


Serve: TypeAlias = Callable[[Wire], Awaitable[None]]
"""A function that serves a new connection until it ends."""


class Listener(NamedTuple):
    """Accepts connections.

    Attributes
    ----------
    address : str
        Address at which other processes reach the listener.
    stop : callable
        Coroutine function that stops the listener.
    """

    address: str
    stop: Callable[[], Awaitable[None]]


def from_header(packed: bytes, receive_buffer: ReceiveBuffer | None) -> Message:
    """Build a message from its packed header, with arrays that are not filled yet."""
    try:
        header = msgpack.unpackb(packed)
    except (TypeError, ValueError) as error:
        raise CommError(f"{NOT_OURS}: {error}") from error
    return Message.from_header(header, receive_buffer)


def flat(array: np.ndarray) -> np.ndarray:
    """Return a view of a contiguous array as a 1-D array of bytes."""
    return array.reshape(-1).view(np.uint8)


Buffer: TypeAlias = "bytes | bytearray | memoryview"

_PREFIX = struct.Struct("<4sIQQ")
"""Precedes each header: mark, length of the header, number of the frame, number of bytes of its arrays."""
_SMALL = 1 << 16
"""Consecutive buffers up to this size are joined before writing, because a copy costs less than a call."""
_SKIP = 1 << 20
_SHARED = b"SNG+"
"""Mark of a message with arrays in shared memory; the positions of the pieces follow the header."""
_RELEASED = b"SNG-"
"""Mark of a frame that releases the oldest piece."""
_PIECE = struct.Struct("<Q")
_MIN_SHARED = 1 << 16
"""Messages whose arrays have fewer bytes do not use shared memory."""


class _StreamWire(Wire):
    """A wire on the byte stream of a comm: TCP or TLS."""

    def __init__(self, comm: TCP) -> None:
        self._comm = comm  # keep a reference, because a comm closes its stream when it is garbage-collected
        self._stream: Any = comm.stream
        self.peer = str(comm.peer_address)

        self._outgoing: Segment | None = None
        self._incoming: Segment | None = None
        self._unwritten: deque[Iterator[Buffer]] = deque()
        self._n_released = 0

    def close(self) -> None:
        self._unwritten.clear()
        for segment in filter(None, (self._outgoing, self._incoming)):
            segment.close()
        self._outgoing = self._incoming = None
        self._comm.abort()

    @property
    def progress(self) -> int:
        # tornado counts the accepted bytes, but has no public attribute for the count
        return int(self._stream._total_write_done_index) + self._n_released

    @contextmanager
    def offer(self, size: int) -> Iterator[str]:
        try:
            offer = Offer(size)
        except OSError:
            yield ""
            return
        with closing(offer):
            yield offer.name
            self._outgoing = offer.taken()

    def take(self, name: str) -> None:
        self._incoming = take(name)

    def write(self, number: int, message: Message) -> None:
        header, arrays = msgpack.packb(message.header()), map(flat, message.all_arrays)
        n_bytes = message.n_bytes
        segment = self._outgoing if n_bytes >= _MIN_SHARED else None
        start = _PREFIX.pack(_SHARED if segment else MARK, len(header), number, n_bytes) + header
        self._unwritten.append(_shared(segment, start, arrays) if segment else _joined(start, arrays))
        self._write_on()

    def _write_on(self) -> None:
        """Write pending messages, until one has to wait for room in shared memory."""
        while self._unwritten:
            for buffer in self._unwritten[0]:
                if not buffer:
                    return
                self._stream.write(buffer)
            self._unwritten.popleft()

    def write_note(self, number: int, header: bytes = b"") -> None:
        self._stream.write(_PREFIX.pack(MARK, len(header), number, 0) + header)

    async def drain(self) -> None:
        await self._stream.write(b"")

    async def read(self, max_header: int = MAX_HEADER) -> Frame:
        while True:
            mark, length, number, n_bytes = _PREFIX.unpack(await self._stream.read_bytes(_PREFIX.size))
            if mark != _RELEASED:
                break
            self._release()
        if mark not in (MARK, _SHARED) or length > max_header:
            raise CommError(NOT_OURS)
        return Frame(number, await self._stream.read_bytes(length) if length else b"", n_bytes, [], mark == _SHARED)

    def _release(self) -> None:
        if self._outgoing is None or not self._outgoing.release():
            raise CommError(NOT_OURS)
        self._n_released += 1
        self._write_on()

    async def skip(self, frame: Frame) -> None:
        if frame.is_shared:
            await self._read_shared([np.empty(frame.n_bytes, np.uint8)])
            return
        left = frame.n_bytes
        while left:
            left -= len(await self._stream.read_bytes(min(left, _SKIP), partial=True))

    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        assert isinstance(frame.header, bytes)
        message = from_header(frame.header, receive_buffer)
        if message.n_bytes != frame.n_bytes:
            raise CommError(f"{NOT_OURS}: it has {message.n_bytes} bytes of arrays, its frame {frame.n_bytes}")
        arrays = list(map(flat, message.all_arrays))
        if frame.is_shared:
            await self._read_shared(arrays)
            return message
        for array in arrays:
            if array.size:
                await self._stream.read_into(array.data)
        return message

    async def _read_shared(self, arrays: Iterable[np.ndarray]) -> None:
        """Read arrays from shared memory, piece by piece."""
        segment = self._incoming
        if segment is None:
            raise OSError("the connection has no shared memory any more")
        for piece in segment.pieces(arrays):
            (position,) = _PIECE.unpack(await self._stream.read_bytes(_PIECE.size))
            try:
                segment.read(position, piece)
            except ValueError as error:
                raise CommError(f"{NOT_OURS}: {error}") from error
            self._stream.write(_PREFIX.pack(_RELEASED, 0, 0, 0))


def _shared(segment: Segment, start: bytes, arrays: Iterable[np.ndarray]) -> Iterator[Buffer]:
    """Write arrays to shared memory, and yield buffers for the stream.

    An empty buffer means that shared memory has no room at present.
    """
    for piece in segment.pieces(arrays):
        while (position := segment.write(piece)) is None:
            yield b""
        yield start + _PIECE.pack(position)
        start = b""


def _joined(start: bytes, arrays: Iterable[np.ndarray]) -> Iterator[Buffer]:
    """Yield the bytes of a message as buffers. Consecutive small buffers are joined."""
    small = bytearray(start)
    for array in arrays:
        if array.size <= _SMALL:
            small += array.data
            continue
        if small:
            yield small
            small = bytearray()
        yield array.data
    if small:
        yield small


class _CommWire(Wire):
    """A wire on a comm that carries whole objects."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm
        self.peer = str(comm.peer_address)
        self._in_process = isinstance(comm, InProc)
        self._frames: asyncio.Queue[list[Any]] = asyncio.Queue()
        self._n_written = 0
        self._writing = asyncio.get_running_loop().create_task(self._write_all())

    @property
    def progress(self) -> int:
        return self._n_written

    async def _write_all(self) -> None:
        options = {} if self._in_process else {"serializers": ["dask"], "on_error": "raise"}
        try:
            while True:
                frame = await self._frames.get()
                await self._comm.write(frame, **options)
                self._n_written += 1
                self._frames.task_done()
        finally:
            self._comm.abort()  # aborting the comm also ends its reader

    def _put(self, frame: list[Any]) -> None:
        if self._writing.done():
            raise OSError("the connection is closed")
        self._frames.put_nowait(frame)

    def write(self, number: int, message: Message) -> None:
        if self._in_process:
            self._put([MARK, number, message])
        else:
            arrays = [to_serialize(flat(array)) for array in message.all_arrays]
            self._put([MARK, number, msgpack.packb(message.header()), *arrays])

    def write_note(self, number: int, header: bytes = b"") -> None:
        self._put([MARK, number, header])

    async def drain(self) -> None:
        written = asyncio.ensure_future(self._frames.join())
        await asyncio.wait({written, self._writing}, return_when=asyncio.FIRST_COMPLETED)
        written.cancel()

    async def read(self, max_header: int = MAX_HEADER) -> Frame:
        frame = await self._comm.read(deserializers=["dask", "error"])
        if not isinstance(frame, list | tuple) or len(frame) < 3 or frame[0] != MARK:
            raise CommError(NOT_OURS)
        _, number, header, *arrays = frame
        allowed = (bytes, Message) if self._in_process else bytes
        if not isinstance(number, int) or not isinstance(header, allowed):
            raise CommError(NOT_OURS)
        return Frame(number, header, 0, arrays)

    async def skip(self, frame: Frame) -> None:
        pass

    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        if isinstance(frame.header, Message):
            return frame.header
        message = from_header(frame.header, receive_buffer)
        try:
            for array, values in zip(message.all_arrays, frame.arrays, strict=True):
                np.copyto(flat(array), values, casting="no")
        except (TypeError, ValueError) as error:
            raise CommError(f"{NOT_OURS}: {error}") from error
        return message

    def close(self) -> None:
        self._writing.cancel()
        # retrieve the task's exception, which is reported elsewhere, so that asyncio does not log it
        self._writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._comm.abort()


def _wire_of(comm: Comm) -> Wire:
    return _StreamWire(comm) if isinstance(comm, TCP) else _CommWire(comm)


async def listen(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    """Listen on the first free port of an endpoint.

    Parameters
    ----------
    serve : callable
        Called with the wire of each new connection; serves the connection until it ends.
    args : mapping
        Result of ``distributed.Security.get_listen_args``.

    Raises
    ------
    CommError
        The address does not belong to this machine, no port is free, or the TLS configuration of Dask is incomplete.
    """

    async def handle(comm: Comm) -> None:
        await serve(_wire_of(comm))

    for port in endpoint.ports:
        try:
            if endpoint.scheme != "inproc":
                _check_port(endpoint.bind_host, port)
            listener = core.listen(endpoint.address(endpoint.bind_host, port), handle, **args)
            await listener.start()
        except (RuntimeError, TypeError) as error:  # distributed raises these errors for wrong TLS settings
            raise CommError(f"{endpoint.scheme}://{endpoint.host}: {error}") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise CommError(
                f"port {port} of {endpoint.bind_host}: {error.strerror}. Expected an address of this machine, "
                f"{socket.gethostname()}, and a port that this user may open."
            ) from error
        return Listener(endpoint.reached_at(str(listener.contact_address)), partial(_stop, listener))
    first, last = endpoint.ports[0], endpoint.ports[-1]
    taken = f"port {first} is taken" if first == last else f"all ports from {first} to {last} are taken"
    raise CommError(
        f"{endpoint.bind_host}: {taken}. Expected a free port for each process of the job on {socket.gethostname()}. "
        "Give more with --listen or cluster.listen.ports."
    )


def _check_port(host: str, port: int) -> None:
    """Raise `OSError` if a port cannot be opened.

    This check comes first, as tornado would leave a socket open.
    """
    socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()


async def _stop(listener: core.Listener) -> None:
    stopped: Any = listener.stop()
    if isawaitable(stopped):
        await stopped
    if isinstance(listener, core.BaseListener):
        listener.abort_handshaking_comms()


def place_of(address: str) -> str:
    """Return the address of a transport without its random mark, i.e. the address at which it listens."""
    return address.partition("#")[0]


async def connect(address: str, timeout_s: float, args: Mapping[str, Any]) -> Wire:
    """Connect to a listener.

    Parameters
    ----------
    args : mapping
        Result of ``distributed.Security.get_connection_args``.

    Raises
    ------
    RefusedError
        The certificates of the two processes do not match.
    OSError
        The address does not answer, or the connection breaks.
    """
    try:
        return _wire_of(await core.connect(place_of(address), timeout=timeout_s, **args))
    except OSError as error:  # connect retries until the timeout; the causes of its error are those of the last attempt
        causes = [error.__cause__, getattr(error.__cause__, "__cause__", None)]
        reason = [error, *(each for each in causes if isinstance(each, OSError) and str(each))][-1]
        if isinstance(reason, ssl.SSLError) and not isinstance(reason, ssl.SSLEOFError):
            raise RefusedError(f"TLS: {reason}. Expected certificates of one authority.") from error
        raise reason from None
