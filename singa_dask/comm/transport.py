"""Transport: sends messages to other processes, and receives theirs.

It runs a private asyncio event loop in a thread of its own, so that parameter traffic and Dask's heartbeats do not
delay each other. It supports every protocol of ``distributed.comm`` (tcp, tls, inproc, ws, and ucxx if
distributed-ucxx is installed), and listens with that of the Dask worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
from distributed.comm.core import Comm, connect, listen
from distributed.comm.inproc import InProc
from distributed.protocol.serialize import to_serialize

from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.errors import CommError

__all__ = ["Transport"]

_PREFIX = struct.Struct("<4sI")
"""Precedes each header: a magic number, and the length of the header in bytes."""
_MARK = b"SNG1"
_REFUSED = "a message that is not of this protocol"
_MAX_HEADER = 64 << 20
_GRACE_S = 0.1
"""Time for sockets that are being connected when the transport is closed."""
_SMALL = 1 << 16
"""Buffers up to this many bytes are joined before writing: copying them costs less than a call for each."""

logger = logging.getLogger(__name__)


class Transport:
    """The endpoint of one process.

    Parameters
    ----------
    host : str
        Scheme and host to listen on, e.g. ``"tcp://10.0.0.7"``; the port is chosen by the system.
    on_message : callable
        Called with each incoming message, in the thread of the transport; must not block.
    on_lost : callable
        Called with the address of a peer that could not be reached or went away, and the reason.
    job : str
        Id of the job.
    life : int
        Life of the job that this process belongs to.
    process : int
        Index of this process in the job.
    receive_buffer : callable, optional
        (message without its array) -> buffer that the array is read into, or None. Called in the thread of the
        transport. A sender may reuse a buffer only after its last message was answered.
    listen_args, connect_args : mapping
        Of ``distributed.Security``, for TLS.
    timeout_s : float
        Timeout for a connection.
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
        receive_buffer: ReceiveBuffer | None = None,
        listen_args: Mapping[str, Any] | None = None,
        connect_args: Mapping[str, Any] | None = None,
        timeout_s: float = 10.0,
        name: str = "transport",
    ) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self.job = job
        self.life = life
        self.process = process
        self._on_message = on_message
        self._on_lost = on_lost
        self._receive_buffer = receive_buffer
        self._connect_args = dict(connect_args or {})
        self._timeout_s = timeout_s
        self._outboxes: dict[str, asyncio.Queue[Message]] = {}
        self._comms: set[Comm] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[Comm]] = set()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        try:
            self.address = self._call(self._listen(host, dict(listen_args or {})))
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        # some comms resolve host names in threads
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(self._timeout_s + 5)

    async def _listen(self, host: str, listen_args: dict[str, Any]) -> str:
        scheme = host.partition("://")[0]
        endpoint = "inproc://" if scheme == "inproc" else f"{host}:0"
        self._listener = listen(endpoint, self._receive, **listen_args)
        await self._listener.start()
        return str(self._listener.contact_address)

    # -- sending -----------------------------------------------------------------------------------

    def send(self, address: str, message: Message) -> None:
        """Send ``message`` to the process at ``address``. Never blocks; the messages of one sender keep their order.

        Do not change the arrays until the peer has answered.
        """
        if self._closed:
            return
        if address.startswith("inproc"):
            message = _copied(message)
        with contextlib.suppress(RuntimeError):  # the loop was closed a moment ago
            self._loop.call_soon_threadsafe(self._enqueue, address, message)

    def _enqueue(self, address: str, message: Message) -> None:
        if self._closed:
            return
        outbox = self._outboxes.get(address)
        if outbox is None:
            outbox = self._outboxes[address] = asyncio.Queue()
            self._spawn(self._deliver(address, outbox))
        outbox.put_nowait(message)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, address: str, outbox: asyncio.Queue[Message]) -> None:
        connecting = self._loop.create_task(connect(address, timeout=self._timeout_s, **self._connect_args))
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        try:
            # shielded, as a cancelled connection attempt would leave its socket open; close() gives it time
            comm = await asyncio.shield(connecting)
        except OSError as error:
            self._lose(address, error)
            return
        self._comms.add(comm)
        try:
            while True:
                message = await outbox.get()
                self.sent_bytes += message.n_bytes
                await _write(comm, message)
        except OSError as error:
            self._lose(address, error)
        finally:
            self._comms.discard(comm)
            comm.abort()

    def _lose(self, address: str, error: BaseException) -> None:
        if not self._closed:
            self._on_lost(address, f"{type(error).__name__}: {error}")

    # -- receiving -----------------------------------------------------------------------------------

    async def _receive(self, comm: Comm) -> None:
        self._comms.add(comm)
        try:
            while True:
                message = await _read(comm, self._receive_buffer)
                self.received_bytes += message.n_bytes
                self._on_message(message)
        except CommError as error:
            logger.warning("refused a message from %s: %s", comm.peer_address, error)
        except OSError:
            pass  # the peer has closed; its outbox, or Dask, reports whether that is a loss
        finally:
            self._comms.discard(comm)
            comm.abort()

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the port and every connection, and end the thread. Can be called twice."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(Exception):
                self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _close(self) -> None:
        listener = getattr(self, "_listener", None)
        if listener is not None:
            stopped = listener.stop()
            if asyncio.iscoroutine(stopped):
                await stopped
        for comm in list(self._comms):
            comm.abort()
        connecting = list(self._connecting)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if connecting:
            await asyncio.wait(connecting, timeout=_GRACE_S)
        for attempt in connecting:
            attempt.cancel()
        for made in await asyncio.gather(*connecting, return_exceptions=True):
            if not isinstance(made, BaseException):
                made.abort()


async def _write(comm: Comm, message: Message) -> None:
    """Write a message; on a stream, without waiting until it is sent."""
    if isinstance(comm, InProc):
        await comm.write(message)
        return
    stream = getattr(comm, "stream", None)
    header = msgpack.packb(message.header())
    if stream is None:  # a comm without a stream, e.g. ucxx, takes arrays as they are
        arrays = [to_serialize(_flat(array)) for array in message.all_arrays]
        await comm.write([_MARK, header, *arrays], serializers=["dask"], on_error="raise")
        return
    buffers = [_PREFIX.pack(_MARK, len(header)) + header, *map(_bytes_of, message.all_arrays)]
    for buffer in _joined(buffers):
        stream.write(buffer)


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


def _copied(message: Message) -> Message:
    parts = tuple(map(_copied, message.parts))
    return replace(message, arrays=tuple(map(np.array, message.arrays)), parts=parts)


async def _read(comm: Comm, receive_buffer: ReceiveBuffer | None) -> Message:
    """Read a message; from a stream, read its arrays straight into the memory that ``receive_buffer`` returns.

    Nothing from a stream is unpickled: bytes from a stranger are refused, or fill an array. Other comms deserialise
    messages themselves, and trust the sender as Dask does.
    """
    stream = getattr(comm, "stream", None)
    if stream is None:
        found = await comm.read(deserializers=["dask", "error"])
        return found if isinstance(found, Message) else _from_parts(found, receive_buffer)
    mark, n_bytes = _PREFIX.unpack(await stream.read_bytes(_PREFIX.size))
    if mark != _MARK or n_bytes > _MAX_HEADER:
        raise CommError(_REFUSED)
    message = _from_header(await stream.read_bytes(n_bytes), receive_buffer)
    for array in message.all_arrays:
        if array.size:
            await stream.read_into(_bytes_of(array))
    return message


def _from_parts(found: object, receive_buffer: ReceiveBuffer | None) -> Message:
    """Return a message from the frames of a comm that deserialises by itself."""
    if not isinstance(found, list | tuple) or len(found) < 2 or found[0] != _MARK:
        raise CommError(_REFUSED)
    message = _from_header(found[1], receive_buffer)
    try:
        for array, values in zip(message.all_arrays, found[2:], strict=True):
            np.copyto(_flat(array), values, casting="no")
    except (TypeError, ValueError) as error:
        raise CommError(f"{_REFUSED}: {error}") from error
    return message


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
