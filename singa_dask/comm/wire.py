"""Wire: numbered frames on one connection to another process.

A frame has a number, a header, and the bytes of arrays. The frame of a message has the message's sequence number, and
its header from `Message.header`. A note is a frame without arrays: the hello that opens a connection, an
acknowledgement (empty header), or a refusal (its text is the header).
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import msgpack
import numpy as np
from distributed.comm.core import Comm
from distributed.comm.inproc import InProc
from distributed.protocol.serialize import to_serialize

from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.errors import CommError

__all__ = ["Frame", "Hello", "Wire", "wire_on"]

VERSION = 2
_MARK = b"SNG2"
_PREFIX = struct.Struct("<4sIQQ")
"""Precedes each header: magic number, length of the header, number of the frame, bytes of its arrays."""
_REFUSED = "a message that is not of this protocol"
_MAX_HEADER = 64 << 20
_MAX_HELLO = 1 << 16
_SMALL = 1 << 16
"""Buffers up to this many bytes are joined before writing: copying them costs less than a call for each."""
_SKIP = 1 << 20


@dataclass(frozen=True)
class Hello:
    """Opens a connection: what the sender is.

    Attributes
    ----------
    job : str
    life : int
    process : int
        Index of the process of the sender.
    address : str
        Where the transport of the sender listens.
    stream : str
        Identifies the sequence of messages that the connection carries on.
    version : int
        Of the protocol.
    """

    job: str
    life: int
    process: int
    address: str
    stream: str = ""
    version: int = VERSION

    def pack(self) -> bytes:
        """Return the header of the frame."""
        packed: bytes = msgpack.packb({field.name: getattr(self, field.name) for field in fields(self)})
        return packed

    @classmethod
    def unpack(cls, packed: object) -> Hello:
        """Return what `pack` has packed; raise CommError if it is something else."""
        try:
            assert isinstance(packed, bytes)
            hello = cls(**msgpack.unpackb(packed))
        except (AssertionError, TypeError, ValueError) as error:
            raise CommError("the first frame is no hello of this protocol") from error
        types = {"job": str, "life": int, "process": int, "address": str, "stream": str, "version": int}
        if not all(type(getattr(hello, name)) is kind for name, kind in types.items()):
            raise CommError("the first frame is no hello of this protocol")
        return hello

    def __str__(self) -> str:
        return f"job {self.job!r}, life {self.life}, protocol {self.version}"

    def refusal(self, other: Hello) -> str:
        """Return why a connection that ``other`` opens is refused here; empty if it is not."""
        if (self.job, self.life, self.version) == (other.job, other.life, other.version):
            return ""
        return f"process {other.process} of {other} has connected. Expected: {self}."


class Frame(NamedTuple):
    """The start of a frame.

    Attributes
    ----------
    number : int
    header : bytes or Message
        A message if both processes are one.
    n_bytes : int
        Bytes of arrays.
    arrays : list
        The arrays as bytes, if they have come with the header.
    """

    number: int
    header: bytes | Message
    n_bytes: int
    arrays: list[Any]


class Wire(ABC):
    """Writes and reads frames. Writing never waits."""

    def __init__(self, comm: Comm) -> None:
        self._comm = comm

    @property
    def peer(self) -> str:
        """Address of the other end."""
        return str(self._comm.peer_address)

    @property
    @abstractmethod
    def progress(self) -> int:
        """A number that rises while what was written is taken off to the peer."""

    @abstractmethod
    def write(self, number: int, message: Message) -> None:
        """Write a message. Its arrays must not change until it is acknowledged."""

    @abstractmethod
    def write_note(self, number: int, header: bytes = b"") -> None:
        """Write a frame without arrays."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until everything was handed to the system."""

    @abstractmethod
    async def read(self, max_header: int = _MAX_HEADER) -> Frame:
        """Read the start of a frame."""

    @abstractmethod
    async def skip(self, frame: Frame) -> None:
        """Read the arrays of a frame, and forget them."""

    @abstractmethod
    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        """Read the rest of the message that a frame holds, its array into what ``receive_buffer`` returns."""

    async def read_hello(self) -> Hello:
        """Read the first frame of a connection."""
        return Hello.unpack((await self.read(_MAX_HELLO)).header)

    def close(self) -> None:
        """Close the connection at once."""
        self._comm.abort()


def wire_on(comm: Comm) -> Wire:
    """Return the wire on a new connection."""
    return _CommWire(comm) if getattr(comm, "stream", None) is None else _StreamWire(comm)


class _StreamWire(Wire):
    """On a byte stream: TCP or TLS. Nothing is pickled: bytes from a stranger are refused, or fill an array."""

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm)
        self._stream: Any = comm.stream  # type: ignore[attr-defined]

    @property
    def progress(self) -> int:
        return int(self._stream._total_write_done_index)  # tornado has no public name for it

    def write(self, number: int, message: Message) -> None:
        header, arrays = msgpack.packb(message.header()), message.all_arrays
        prefix = _PREFIX.pack(_MARK, len(header), number, message.n_bytes)
        for buffer in _joined([prefix + header, *map(_bytes_of, arrays)]):
            self._stream.write(buffer)

    def write_note(self, number: int, header: bytes = b"") -> None:
        self._stream.write(_PREFIX.pack(_MARK, len(header), number, 0) + header)

    async def drain(self) -> None:
        await self._stream.write(b"")

    async def read(self, max_header: int = _MAX_HEADER) -> Frame:
        mark, length, number, n_bytes = _PREFIX.unpack(await self._stream.read_bytes(_PREFIX.size))
        if mark != _MARK or length > max_header:
            raise CommError(_REFUSED)
        return Frame(number, await self._stream.read_bytes(length) if length else b"", n_bytes, [])

    async def skip(self, frame: Frame) -> None:
        left = frame.n_bytes
        while left:
            left -= len(await self._stream.read_bytes(min(left, _SKIP), partial=True))

    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        assert isinstance(frame.header, bytes)
        message = _from_header(frame.header, receive_buffer)
        if message.n_bytes != frame.n_bytes:
            raise CommError(f"{_REFUSED}: it has {message.n_bytes} bytes of arrays, its frame {frame.n_bytes}")
        for array in message.all_arrays:
            if array.size:
                await self._stream.read_into(_bytes_of(array))
        return message


class _CommWire(Wire):
    """On a comm that carries whole objects: inproc, ws, ucxx. It deserialises by itself, as Dask does."""

    def __init__(self, comm: Comm) -> None:
        super().__init__(comm)
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
            self._comm.abort()  # whoever reads finds out

    def _put(self, frame: list[Any]) -> None:
        if self._writing.done():
            raise OSError("the connection is closed")
        self._frames.put_nowait(frame)

    def write(self, number: int, message: Message) -> None:
        if self._in_process:
            self._put([_MARK, number, message])
        else:
            arrays = [to_serialize(_flat(array)) for array in message.all_arrays]
            self._put([_MARK, number, msgpack.packb(message.header()), *arrays])

    def write_note(self, number: int, header: bytes = b"") -> None:
        self._put([_MARK, number, header])

    async def drain(self) -> None:
        written = asyncio.ensure_future(self._frames.join())
        await asyncio.wait({written, self._writing}, return_when=asyncio.FIRST_COMPLETED)
        written.cancel()

    async def read(self, max_header: int = _MAX_HEADER) -> Frame:
        found = await self._comm.read(deserializers=["dask", "error"])
        if not isinstance(found, list | tuple) or len(found) < 3 or found[0] != _MARK:
            raise CommError(_REFUSED)
        _, number, header, *arrays = found
        allowed = (bytes, Message) if self._in_process else bytes
        if not isinstance(number, int) or not isinstance(header, allowed):
            raise CommError(_REFUSED)
        return Frame(number, header, 0, arrays)

    async def skip(self, frame: Frame) -> None:
        pass

    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        if isinstance(frame.header, Message):
            return frame.header
        message = _from_header(frame.header, receive_buffer)
        try:
            for array, values in zip(message.all_arrays, frame.arrays, strict=True):
                np.copyto(_flat(array), values, casting="no")
        except (TypeError, ValueError) as error:
            raise CommError(f"{_REFUSED}: {error}") from error
        return message

    def close(self) -> None:
        self._writing.cancel()
        self._writing.add_done_callback(_retrieve)
        super().close()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Take note of the exception of a task, which is reported elsewhere."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()


def _joined(buffers: Iterable[bytes | memoryview]) -> Iterator[bytearray | bytes | memoryview]:
    """Yield the same bytes, with consecutive small buffers joined."""
    small = bytearray()
    for buffer in buffers:
        if len(buffer) <= _SMALL:
            small += buffer
            continue
        if small:
            yield small
            small = bytearray()
        yield buffer
    if small:
        yield small


def _from_header(packed: bytes, receive_buffer: ReceiveBuffer | None) -> Message:
    try:
        header = msgpack.unpackb(packed)
    except (TypeError, ValueError) as error:
        raise CommError(f"{_REFUSED}: {error}") from error
    return Message.from_header(header, receive_buffer)


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _bytes_of(array: np.ndarray) -> memoryview:
    return _flat(array).data
