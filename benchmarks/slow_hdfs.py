"""An HDFS behind a slow network: proxies hold each piece of data for a fixed time, in both directions.

They limit neither how much is under way nor how fast it comes. ``python -m benchmarks.slow_hdfs LISTEN CONNECT
...`` is the process of the proxies: each line of its standard input is a delay in seconds, the end of it their end.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hdfs.cluster import MiniHdfs
from tests.ports import free_port

__all__ = ["SlowHdfs", "SlowLinks"]

# servers and proxies have the same ports at different addresses
HIDDEN, SEEN = "127.0.0.2", "127.0.0.1"
BLOCK_BYTES = 16 << 20
# what follows the last piece of data
END, LOST = "end", "lost"


class SlowHdfs(MiniHdfs):
    """An HDFS of one DataNode, with blocks of 16 MiB, that is reached by `SlowLinks`.

    The DataNode listens at another address than that by which the NameNode and its clients know it.

    Attributes
    ----------
    far_url : str
        ``hdfs://...`` by the proxies.
    """

    def __init__(self, directory: Path) -> None:
        self._port, self._data_port, self._web_port = (free_port() for _ in range(3))
        super().__init__(directory, replication=1, hosts=(SEEN,))
        self.far_url = f"hdfs://{SEEN}:{self._port}"

    def _settings(self, addresses: Sequence[str], replication: int) -> dict[str, Any]:
        return {
            **super()._settings(addresses, replication),
            "dfs.blocksize": BLOCK_BYTES,
            "dfs.datanode.address": f"{HIDDEN}:{self._data_port}",
            "dfs.datanode.http.address": f"{HIDDEN}:{self._web_port}",
        }

    def links(self) -> SlowLinks:
        """Return the proxies that the NameNode and the DataNode are reached by."""
        ports = (self._data_port, self._web_port)
        pairs = {f"{SEEN}:{self._port}": self.url.removeprefix("hdfs://")}
        return SlowLinks(pairs | {f"{SEEN}:{port}": f"{HIDDEN}:{port}" for port in ports})


class SlowLinks:
    """Proxies in a process of their own, at first without a delay; use it in a ``with`` statement.

    Parameters
    ----------
    pairs : mapping of str to str
        Address to listen at -> address to connect to.
    """

    def __init__(self, pairs: Mapping[str, str]) -> None:
        addresses = [address for pair in pairs.items() for address in pair]
        self._command = [sys.executable, "-m", __name__, *addresses]

    def __enter__(self) -> SlowLinks:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.set_delay(0.0)
        return self

    def set_delay(self, delay_s: float) -> None:
        """Hold what comes from now on for so long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{delay_s}\n")
        self._process.stdin.flush()
        if not self._process.stdout.readline():
            raise RuntimeError("the proxies have ended")

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


class _Delay:
    """The delay of all connections."""

    seconds = 0.0


class _End(asyncio.Protocol):
    """One end of a connection: what arrives is sent by the other end after the delay."""

    def __init__(self, delay: _Delay) -> None:
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes | str]] = deque()
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._pass(data)

    def eof_received(self) -> bool:
        self._pass(END)
        # the other direction stays open
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._pass(LOST)

    def _pass(self, data: bytes | str) -> None:
        due = self._loop.time() + self._delay.seconds
        self._waiting.append((due, data))
        if len(self._waiting) == 1:
            self._loop.call_at(due, self._send)

    def _send(self) -> None:
        """Send what is due."""
        now = self._loop.time()
        other = self.other and self.other.transport
        while self._waiting and self._waiting[0][0] <= now:
            _, data = self._waiting.popleft()
            if not other or other.is_closing():
                continue
            if isinstance(data, bytes):
                other.write(data)
            elif data == END:
                other.write_eof()
            else:
                other.close()
        if self._waiting:
            self._loop.call_at(self._waiting[0][0], self._send)


class _Front(_End):
    """The end to which a client connects. A connection takes as long as a request and its answer."""

    def __init__(self, delay: _Delay, host: str, port: str) -> None:
        super().__init__(delay)
        self._address = host, int(port)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        assert self.transport is not None
        await asyncio.sleep(2 * self._delay.seconds)
        back = _End(self._delay)
        back.other = self
        try:
            await self._loop.create_connection(lambda: back, *self._address)
        except OSError:
            self.transport.abort()
            return
        self.other = back
        self.transport.resume_reading()


async def serve(addresses: Sequence[str]) -> None:
    """Run proxies until the standard input ends."""
    loop, delay = asyncio.get_running_loop(), _Delay()

    def front(there: str) -> Callable[[], _Front]:
        return lambda: _Front(delay, *there.split(":"))

    for here, there in zip(addresses[::2], addresses[1::2], strict=True):
        host, port = here.split(":")
        await loop.create_server(front(there), host, int(port), backlog=256)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        delay.seconds = float(line)
        print("set", flush=True)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
