"""A TCP proxy that does to connections what bad networks do."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from singa_dask.comm.wire import place_of

__all__ = ["Proxy"]

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards connections to ``target``, an address such as ``"tcp://127.0.0.1:5000"``.

    Parameters
    ----------
    target : str
    lifetime : callable, optional
        () -> number of bytes, of both directions, after which the next connection is reset.
    delay_s : float
        Delay of each piece of data.
    """

    def __init__(self, target: str, lifetime: Callable[[], float] = lambda: float("inf"), delay_s: float = 0) -> None:
        self.target = target
        self.n_resets = 0
        self._lifetime = lifetime
        self._delay_s = delay_s
        self._is_cut = False
        self._is_paused = False
        self._links: dict[int, _Link] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self.address = self._call(self._listen())

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _listen(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer, self._lifetime())
        self._links[id(link)] = link
        try:
            if self._is_cut:
                return
            if self._is_paused:
                await reader.read(-1)
                return
            host, port = place_of(self.target).removeprefix("tcp://").split(":")
            far_reader, link.far = await asyncio.open_connection(host, int(port))
            pumps = [self._pump(link, reader, link.far), self._pump(link, far_reader, writer)]
            link.pumps = [asyncio.ensure_future(pump) for pump in pumps]
            await asyncio.wait(link.pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        finally:
            self._reset(link)
            await asyncio.gather(*link.pumps, return_exceptions=True)
            del self._links[id(link)]

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            if link.is_frozen:
                continue
            part = data[: int(min(link.left, len(data)))]
            link.left -= len(data)
            writer.write(part)
            await writer.drain()
            if link.left <= 0:
                self.n_resets += 1
                return

    def _reset(self, link: _Link) -> None:
        for pump in link.pumps:
            pump.cancel()
        for writer in (link.near, link.far):
            if writer is not None:
                if not writer.transport.is_closing():
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()

    def cut(self) -> None:
        """Reset all connections, and each new one, until `mend`."""
        self._call(self._cut())

    async def _cut(self) -> None:
        self._is_cut = True
        for link in list(self._links.values()):
            self._reset(link)

    def mend(self) -> None:
        """End `cut`."""
        self._is_cut = False

    def freeze(self) -> None:
        """Swallow all that still comes on the connections of now; they stay open."""
        for link in list(self._links.values()):
            link.is_frozen = True

    def pause(self) -> None:
        """Accept new connections, and answer nothing."""
        self._is_paused = True

    def close(self) -> None:
        """Close every connection, and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        while self._links:
            await asyncio.sleep(0)


class _Link:
    def __init__(self, near: asyncio.StreamWriter, left: float) -> None:
        self.near = near
        self.far: asyncio.StreamWriter | None = None
        self.left = left
        self.is_frozen = False
        self.pumps: list[asyncio.Future[None]] = []
