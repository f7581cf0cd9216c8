"""Wire: numbered frames on one connection to another process, and the listeners and connections that carry them.

A frame has a number, a header, and the bytes of arrays. The frame of a message has the message's sequence number, and
its header from `Message.header`. A note is a frame without arrays: the greeting that opens a connection, an
acknowledgement (empty header), or a refusal (its text is the header).

Wires for ``tcp://`` and ``tls://`` are our own, as those of ``distributed.comm`` unpickle: a handshake, or a message,
that holds ``{"__Pickled__": ...}`` makes ``distributed.protocol.loads`` run what a stranger has sent, whatever
deserializers are asked for. Here a stranger's bytes are at most compared with a signature; see
`singa_dask.comm.greeting`.

The other schemes are those of ``distributed.comm``: inproc, ws, ucxx. Nobody outside the process reaches ``inproc://``.
The handshake of the others, and of plug-ins, unpickles what comes, before anything of ours reads it: like Dask itself,
they are for networks where everyone is trusted.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import ssl
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple, TypeAlias

import dask.config
import msgpack
import numpy as np
from distributed.comm import core
from distributed.comm.addressing import parse_address, parse_host_port, unparse_host_port
from distributed.comm.core import Comm
from distributed.comm.inproc import InProc
from distributed.comm.tcp import set_tcp_timeout
from distributed.protocol.serialize import to_serialize
from distributed.utils import get_ip_interface
from tornado.iostream import IOStream, SSLIOStream
from tornado.tcpserver import TCPServer

from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.errors import CommError

ANY_PORT = (0,)


@dataclass(frozen=True)
class Endpoint:
    """The host and the ports that a process of a job listens on.

    Attributes
    ----------
    scheme : str
    host : str
        Where other processes reach it.
    bind_host : str
        IP address that it listens on: that of ``host``, or of all interfaces.
    ports : sequence of int
        To choose from; 0 stands for any.
    """

    scheme: str
    host: str
    bind_host: str
    ports: Sequence[int] = ANY_PORT

    @classmethod
    def of(cls, address: str, interface: str = "", ports: Sequence[int] = ANY_PORT) -> Endpoint:
        """Find an endpoint for a job on a Dask worker.

        Parameters
        ----------
        address : str
            Scheme and host of the Dask worker, e.g. ``"tcp://10.0.0.7"``.
        interface : str
            Name of a network interface, an IP address or a host name of this machine; by default the Dask worker's own
            host. With ``"0.0.0.0"`` or ``"::"`` it listens on all interfaces, and is reached where the Dask worker is.
        ports : sequence of int

        Raises
        ------
        CommError
            This machine has no such interface or host.
        """
        scheme, _, host = address.partition("://")
        if scheme not in ("tcp", "tls"):
            return cls(scheme, host, host, ports)
        host = host.strip("[]")
        if not interface:
            return cls(scheme, host, _ip_of(host), ports)
        try:
            bind_host = str(get_ip_interface(interface))
        except ValueError:  # no interface of this name has an IPv4 address
            bind_host = _ip_of(interface)
        is_any = ipaddress.ip_address(bind_host).is_unspecified
        return cls(scheme, host if is_any else bind_host, bind_host, ports)


def _ip_of(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise CommError(
            f"{host!r} is no network interface with an IPv4 address, no address and no host name on "
            f"{socket.gethostname()}. Its network interfaces: {known}."
        ) from error


MARK = b"SNG3"
MAX_HEADER = 64 << 20
NOT_OURS = "a message that is not of this protocol"


class RefusedError(Exception):
    """The peer has refused the connection, or cannot continue it. To try again would not help."""


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

    peer: str
    """Address of the other end."""

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
    async def read(self, max_header: int = MAX_HEADER) -> Frame:
        """Read the start of a frame."""

    @abstractmethod
    async def skip(self, frame: Frame) -> None:
        """Read the arrays of a frame, and forget them."""

    @abstractmethod
    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        """Read the rest of the message that a frame holds, its array into what ``receive_buffer`` returns."""

    async def open(self) -> None:
        """Wait until the connection can be used, as after the handshake of TLS."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the connection at once."""


Serve: TypeAlias = Callable[[Wire], Awaitable[None]]
"""Serves a new connection to its end."""


class Listener(NamedTuple):
    """Takes connections.

    Attributes
    ----------
    address : str
        Where other processes reach it.
    stop : callable
        Coroutine function after which it takes no more connections.
    """

    address: str
    stop: Callable[[], Awaitable[None]]


def from_header(packed: bytes, receive_buffer: ReceiveBuffer | None) -> Message:
    """Build a message from its packed header, with arrays that are still to be filled."""
    try:
        header = msgpack.unpackb(packed)
    except (TypeError, ValueError) as error:
        raise CommError(f"{NOT_OURS}: {error}") from error
    return Message.from_header(header, receive_buffer)


def flat(array: np.ndarray) -> np.ndarray:
    """Return a contiguous array as bytes."""
    return array.reshape(-1).view(np.uint8)


_SOCKETS = "tcp", "tls"
"""Schemes of our own wires."""
_PREFIX = struct.Struct("<4sIQQ")
"""Precedes each header: magic number, length of the header, number of the frame, bytes of its arrays."""
_SMALL = 1 << 16
"""Buffers up to this many bytes are joined before writing: copying them costs less than a call for each."""
_SKIP = 1 << 20
_MAX_BUFFER = sys.maxsize
"""For tornado, which counts the array that it reads into. Beside that it reads at most 64 KiB ahead."""


class _StreamWire(Wire):
    """On a byte stream: TCP or TLS."""

    def __init__(self, stream: IOStream, peer: str) -> None:
        self._stream: Any = stream
        self.peer = peer
        if not stream.closed():
            stream.set_nodelay(True)
            set_tcp_timeout(stream)

    async def open(self) -> None:
        if isinstance(self._stream, SSLIOStream):
            await self._stream.wait_for_handshake()

    def close(self) -> None:
        self._stream.close()

    @property
    def progress(self) -> int:
        return int(self._stream._total_write_done_index)  # tornado has no public name for it

    def write(self, number: int, message: Message) -> None:
        header, arrays = msgpack.packb(message.header()), message.all_arrays
        prefix = _PREFIX.pack(MARK, len(header), number, message.n_bytes)
        for buffer in _joined([prefix + header, *map(_bytes_of, arrays)]):
            self._stream.write(buffer)

    def write_note(self, number: int, header: bytes = b"") -> None:
        self._stream.write(_PREFIX.pack(MARK, len(header), number, 0) + header)

    async def drain(self) -> None:
        await self._stream.write(b"")

    async def read(self, max_header: int = MAX_HEADER) -> Frame:
        mark, length, number, n_bytes = _PREFIX.unpack(await self._stream.read_bytes(_PREFIX.size))
        if mark != MARK or length > max_header:
            raise CommError(NOT_OURS)
        return Frame(number, await self._stream.read_bytes(length) if length else b"", n_bytes, [])

    async def skip(self, frame: Frame) -> None:
        left = frame.n_bytes
        while left:
            left -= len(await self._stream.read_bytes(min(left, _SKIP), partial=True))

    async def read_message(self, frame: Frame, receive_buffer: ReceiveBuffer | None) -> Message:
        assert isinstance(frame.header, bytes)
        message = from_header(frame.header, receive_buffer)
        if message.n_bytes != frame.n_bytes:
            raise CommError(f"{NOT_OURS}: it has {message.n_bytes} bytes of arrays, its frame {frame.n_bytes}")
        for array in message.all_arrays:
            if array.size:
                await self._stream.read_into(_bytes_of(array))
        return message


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


def _bytes_of(array: np.ndarray) -> memoryview:
    return flat(array).data


class _Server(TCPServer):
    """Serves each connection to a port as a wire."""

    def __init__(self, scheme: str, serve: Serve, context: ssl.SSLContext | None) -> None:
        super().__init__(ssl_options=context, max_buffer_size=_MAX_BUFFER)
        self._scheme = scheme
        self._serve = serve

    async def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """Serve one connection."""
        await self._serve(_StreamWire(stream, f"{self._scheme}://{unparse_host_port(*address[:2])}"))

    async def stop_listening(self) -> None:
        """Take no more connections."""
        self.stop()


async def listen(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    """Listen on the first free port of an endpoint; where the scheme is neither tcp nor tls, as Dask does on any port.

    Parameters
    ----------
    endpoint : Endpoint
    serve : callable
        Serves the wire of each connection to its end.
    args : mapping
        Of ``distributed.Security.get_listen_args``.

    Raises
    ------
    CommError
        There is no such host here, or no port is free.
    """
    if endpoint.scheme not in _SOCKETS:
        return await _listen_by_dask(endpoint, serve, args)
    server = _Server(endpoint.scheme, serve, _context(endpoint.scheme, args))
    backlog = int(dask.config.get("distributed.comm.socket-backlog"))
    for port in endpoint.ports:
        try:
            opened = _bind(endpoint.bind_host, port, backlog)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue
            raise CommError(
                f"port {port} of {endpoint.bind_host}: {error.strerror}. Expected an address of this machine, "
                f"{socket.gethostname()}, and a port that this user may open."
            ) from error
        server.add_socket(opened)
        location = unparse_host_port(endpoint.host, opened.getsockname()[1])
        return Listener(f"{endpoint.scheme}://{location}", server.stop_listening)
    first, last = endpoint.ports[0], endpoint.ports[-1]
    taken = f"port {first} is taken" if first == last else f"all ports from {first} to {last} are taken"
    raise CommError(
        f"{endpoint.bind_host}: {taken}. Expected a free port for each process of the job on {socket.gethostname()}. "
        "Give more with --listen or cluster.listen.ports."
    )


def _bind(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    opened = socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)
    opened.setblocking(False)
    return opened


async def connect(address: str, timeout_s: float, args: Mapping[str, Any]) -> Wire:
    """Connect to a listener.

    Parameters
    ----------
    address : str
    timeout_s : float
    args : mapping
        Of ``distributed.Security.get_connection_args``.

    Raises
    ------
    RefusedError
        The certificates of both ends do not fit.
    OSError
        Nobody listens there, or the connection breaks.
    """
    scheme, location = parse_address(address)
    if scheme not in _SOCKETS:
        return _CommWire(await core.connect(address, timeout=timeout_s, **args))
    context = _context(scheme, args)
    host, port = parse_host_port(location)
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, *_, where = addresses[0]
    kind = partial(SSLIOStream, ssl_options=context) if context else IOStream
    stream = kind(socket.socket(family), max_buffer_size=_MAX_BUFFER)
    try:
        name = args.get("server_hostname") or host
        await asyncio.wait_for(stream.connect(where, server_hostname=name if context else None), timeout_s)
    except BaseException as error:
        stream.close()
        cause = getattr(error, "real_error", None) or error
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            raise RefusedError(f"TLS: {cause}. Expected certificates of one authority.") from error
        raise
    return _StreamWire(stream, address)


def _context(scheme: str, args: Mapping[str, Any]) -> ssl.SSLContext | None:
    if scheme == "tls":
        context = args.get("ssl_context")
        if not isinstance(context, ssl.SSLContext):
            raise CommError(
                "tls://: there are no certificates. Expected those of Dask's configuration, distributed.comm.tls."
            )
        return context
    if args.get("require_encryption"):
        raise CommError("tcp://: Dask's configuration requires encryption. Expected tls://.")
    return None


class _CommWire(Wire):
    """On a comm, which carries whole objects and deserialises them by itself."""

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
            self._comm.abort()  # whoever reads finds out

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
        # what it has raised is reported elsewhere
        self._writing.add_done_callback(lambda task: task.cancelled() or task.exception())
        self._comm.abort()


async def _listen_by_dask(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    async def handle(comm: Comm) -> None:
        await serve(_CommWire(comm))

    async def stop() -> None:
        stopped: Any = listener.stop()
        if isawaitable(stopped):
            await stopped
        if isinstance(listener, core.BaseListener):
            listener.abort_handshaking_comms()

    address = "inproc://" if endpoint.scheme == "inproc" else f"{endpoint.scheme}://{endpoint.bind_host}:0"
    listener = core.listen(address, handle, **args)
    await listener.start()
    return Listener(str(listener.contact_address), stop)
