"""Transport: exchange messages with other processes. Each message arrives exactly once and in order.

The transport has an asyncio event loop in a thread of its own, so that parameter traffic and Dask's heartbeats do not
delay each other. It listens through ``distributed.comm``, with the same scheme (tcp, tls, ...) as the Dask worker; see
`singa_dask.comm.wire`.

Exactly once, in order: each process opens a connection to every process to which it sends messages. A connection begins
with a hello; see `singa_dask.comm.greeting`. The answer has the number of the last received message, and the sender
continues after this message. The receiver acknowledges messages after 0.25 s, or sooner after many messages or bytes.
The sender keeps messages until they are acknowledged, so that after a broken connection it sends exactly the missing
messages again. The receiver drops repeated messages before it asks for a receive buffer. If it finds that a message is
missing, it closes the connection, and the sender connects again.

Memory: messages are sent from the memory of their arrays, also when they are sent again. The sender may change the
arrays once its message is answered. This is safe, because the receiver counts a message before it delivers it, so an
answered message is never sent again. A broken connection may leave a receive buffer partly written. This is safe, too:
the repeated message overwrites the whole buffer before it is delivered, and an old connection is ignored once there is
a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from singa_dask.comm.backlog import Backlog
from singa_dask.comm.endpoint import ANY_PORT, Endpoint
from singa_dask.comm.greeting import Hello
from singa_dask.comm.inbox import Inbox
from singa_dask.comm.message import Message, ReceiveBuffer
from singa_dask.comm.outbox import Outbox
from singa_dask.comm.wire import Listener, listen

logger = logging.getLogger(__name__)

_CLOSE_S = 5.0


class Transport:
    """Sends and receives the messages of one process, in one incarnation of a job.

    Parameters
    ----------
    host : str
        Scheme and host of the Dask worker, e.g. ``"tcp://10.0.0.7"``.
    on_message : callable
        Called with each incoming message, in the thread of the transport. It must neither block nor raise errors.
    on_lost : callable
        Called once for each lost peer, with its address and the reason; see `Outbox`.
    job : str
        Id of the job.
    incarnation : int
        Number of the incarnation. Connections from other incarnations are refused.
    process : int
        Number of this process in the job.
    token : str
        Secret that all processes of the job share.
    receive_buffer : callable, optional
        Takes a message without its array; returns the buffer for the array, or None for new memory. Called in the
        thread of the transport. Two messages may have the same buffer only if the sender waits for the answer to the
        first one.
    backlog : Backlog, optional
        While the backlog is full, no arrays are read.
    interface, ports : str, sequence of int
        Where to listen; see `Endpoint.of`.
    listen_args, connect_args : mapping
        Arguments from ``distributed.Security``, for TLS.
    timeout_s : float
        Maximum duration of one attempt to connect, including the answer to the hello.
    retry_s : float
        Seconds after which a peer that cannot be reached counts as lost.
    shared_bytes : int
        Size of the shared memory for each connection to a process on this host; 0 for no shared memory.
    name : str
        Name of the thread.

    Attributes
    ----------
    address : str
        Address at which other processes reach this one (see `place_of`), followed by a random mark. With the mark, a
        later process on the same port has a different address.
    sent_bytes : int
        Bytes of arrays in all messages to other processes. A message that is sent again counts once.
    """

    def __init__(
        self,
        host: str,
        on_message: Callable[[Message], None],
        on_lost: Callable[[str, str], None],
        *,
        job: str,
        incarnation: int,
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
        self._hello = Hello(token, job, incarnation, process, address="")
        backlog = backlog or Backlog()
        self._inbox = Inbox(self._hello, on_message, receive_buffer, backlog, timeout_s)
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
        """Bytes of arrays in all messages from other processes. A repeated message counts once."""
        return self._inbox.received_bytes

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        # some comms resolve host names in executor threads, which must end before the loop is closed
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(_CLOSE_S)

    async def _listen(self, endpoint: Endpoint, listen_args: Mapping[str, Any]) -> str:
        self._listener = await listen(endpoint, self._inbox.serve, listen_args)
        return self._listener.address

    def send(self, address: str, message: Message) -> None:
        """Send a message to the process at ``address``, after all earlier messages to it, without blocking.

        Do not change the arrays until the peer has answered the message. Messages to a lost peer are discarded.
        """
        if self._closed:
            return
        if address.startswith("inproc"):
            message = _copied(message)
        is_own = threading.current_thread() is self._thread  # the loop does not have to be woken from its own thread
        with contextlib.suppress(RuntimeError):  # the loop may have been closed since the check above
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
        with contextlib.suppress(RuntimeError):  # the loop may be closed
            self._loop.call_soon_threadsafe(self._inbox.room.set)

    def _lose(self, address: str, reason: str) -> None:
        if not self._closed:
            self._on_lost(address, reason)

    def cut(self, address: str) -> None:
        """Close all connections with a process that was replaced, and refuse new connections from it.

        Messages to this process are discarded, and it is not reported as lost.
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
        """Close the port and every connection, and end the thread. Unsent messages are discarded.

        This method may be called twice.
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
