"""Sockets: wires, listeners and connections for ``tcp://`` and ``tls://``.

Those of ``distributed.comm`` are not used, as they unpickle: a handshake, or a message, that holds
``{"__Pickled__": ...}`` makes ``distributed.protocol.loads`` run what a stranger has sent, whatever deserializers are
asked for. Here a stranger's bytes are at most compared with a signature; see `singa_dask.comm.greeting`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import dask.config
import msgpack
import numpy as np
from distributed.comm.addressing import parse_address, parse_host_port, unparse_host_port
from distributed.comm.tcp import set_tcp_timeout
from tornado.iostream import IOStream, SSLIOStream
from tornado.tcpserver import TCPServer

from singa_dask.comm.endpoint import Endpoint
from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.comm.wire import (
    MARK,
    MAX_HEADER,
    NOT_OURS,
    Frame,
    Listener,
    RefusedError,
    Serve,
    Wire,
    flat,
    from_header,
)
from singa_dask.errors import CommError

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


class _SocketListener(Listener):
    def __init__(self, server: _Server, address: str) -> None:
        self._server = server
        self.address = address

    async def stop(self) -> None:
        self._server.stop()


async def listen(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    """Listen on the first free port of an endpoint.

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
        return _SocketListener(
            server, f"{endpoint.scheme}://{unparse_host_port(endpoint.host, opened.getsockname()[1])}"
        )
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
    context = _context(scheme, args)
    host, port = parse_host_port(location)
    family, where = await _resolve(host, port)
    opened = socket.socket(family)
    kind = partial(SSLIOStream, ssl_options=context) if context else IOStream
    stream = kind(opened, max_buffer_size=_MAX_BUFFER)
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


async def _resolve(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Return family and address of a host; names are looked up in a thread."""
    find = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = find(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().run_in_executor(None, find)
    return found[0][0], found[0][4]
