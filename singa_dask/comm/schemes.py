"""Schemes: which listeners and connections serve an address; those of tcp and tls are in `singa_dask.comm.sockets`.

The others are those of ``distributed.comm``: inproc, ws, ucxx. Nobody outside the process reaches ``inproc://``. The
handshake of the others, and of plug-ins, unpickles what comes, before anything of ours reads it: like Dask itself, they
are for networks where everyone is trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from inspect import isawaitable
from typing import Any

import msgpack
import numpy as np
from distributed.comm import core
from distributed.comm.core import Comm
from distributed.comm.inproc import InProc
from distributed.protocol.serialize import to_serialize

from singa_dask.comm import sockets
from singa_dask.comm.endpoint import Endpoint
from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.comm.wire import MARK, MAX_HEADER, NOT_OURS, Frame, Listener, Serve, Wire, flat, from_header
from singa_dask.errors import CommError

SOCKETS = "tcp", "tls"


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
        found = await self._comm.read(deserializers=["dask", "error"])
        if not isinstance(found, list | tuple) or len(found) < 3 or found[0] != MARK:
            raise CommError(NOT_OURS)
        _, number, header, *arrays = found
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
        self._writing.add_done_callback(_retrieve)
        self._comm.abort()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Take note of the exception of a task, which is reported elsewhere."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()


class _CommListener(Listener):
    def __init__(self, listener: core.Listener) -> None:
        self._listener = listener
        self.address = str(listener.contact_address)

    async def stop(self) -> None:
        stopped: Any = self._listener.stop()
        if isawaitable(stopped):
            await stopped
        if isinstance(self._listener, core.BaseListener):
            self._listener.abort_handshaking_comms()


async def _listen(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    """Listen as Dask does on any port; for the parameters see `singa_dask.comm.sockets.listen`."""

    async def handle(comm: Comm) -> None:
        await serve(_CommWire(comm))

    address = "inproc://" if endpoint.scheme == "inproc" else f"{endpoint.scheme}://{endpoint.bind_host}:0"
    listener = core.listen(address, handle, **args)
    await listener.start()
    return _CommListener(listener)


async def _connect(address: str, timeout_s: float, args: Mapping[str, Any]) -> Wire:
    """Connect as Dask does; for the parameters see `singa_dask.comm.sockets.connect`."""
    return _CommWire(await core.connect(address, timeout=timeout_s, **args))


async def listen(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    """Listen on an endpoint; see `singa_dask.comm.sockets.listen`."""
    by = sockets.listen if endpoint.scheme in SOCKETS else _listen
    return await by(endpoint, serve, args)


async def connect(address: str, timeout_s: float, args: Mapping[str, Any]) -> Wire:
    """Connect to a listener; see `singa_dask.comm.sockets.connect`."""
    by = sockets.connect if address.partition("://")[0] in SOCKETS else _connect
    return await by(address, timeout_s, args)
