"""What strangers send to an endpoint: random bytes, frames that look right, recorded ones, and pickles."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from distributed.comm.tcp import _add_frames_header
from distributed.protocol import dumps
from distributed.protocol.serialize import ToPickle

from singa_dask.comm.greeting import Hello, Secret
from singa_dask.comm.wire import MARK
from tests.comm.ends import TIMEOUT_S, update

__all__ = ["CHALLENGE_BYTES", "Stranger", "dask_message", "frame", "intrude", "record_hello", "strangers"]

AT_ONCE = 50
CHALLENGE_BYTES = 24 + 32
_PREFIX = struct.Struct("<4sIQQ")


class Stranger(NamedTuple):
    """One connection: the bytes that are sent; whether it waits for the challenge, and stays until it is closed."""

    sent: bytes
    waits: bool = False
    stays: bool = True


class Bomb:
    """Creates a file where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.file,)


def frame(
    header: bytes = b"", number: int = 0, n_bytes: int = 0, length: int | None = None, mark: bytes = MARK
) -> bytes:
    """Return a frame as it goes over a socket, or one whose prefix says something else."""
    return _PREFIX.pack(mark, len(header) if length is None else length, number, n_bytes) + header


def dask_message(file: Path) -> bytes:
    """Return a message of Dask that creates a file where it is read."""
    frames, _, _ = _add_frames_header(dumps({"op": ToPickle(Bomb(file)), "pickle-protocol": 5, "compression": None}))
    return b"".join(bytes(each) for each in frames)


async def _exchange(address: str, stranger: Stranger) -> int:
    """Send what a stranger sends; return the number of bytes that it gets."""
    host, port = address.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = 0
    try:
        with suppress(OSError):
            if stranger.waits:
                got += len(await reader.readexactly(CHALLENGE_BYTES))
            writer.write(stranger.sent)
            await writer.drain()
            if stranger.stays:
                got += len(await reader.read(-1))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return got


def intrude(address: str, strangers: Iterator[Stranger]) -> int:
    """Let strangers connect, many at once; return the most bytes that one of them got."""

    async def work() -> int:
        return max([0, *[await asyncio.wait_for(_exchange(address, each), TIMEOUT_S) for each in strangers]])

    async def run() -> int:
        return max(await asyncio.gather(*(work() for _ in range(AT_ONCE))))

    return asyncio.run(run())


def record_hello(send: Callable[[str], None]) -> bytes:
    """Return the frame that a sender says hello with; ``send`` makes it connect to an address."""
    recorded: list[bytes] = []

    async def run() -> None:
        done = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(frame(bytes(32)))
            length = _PREFIX.unpack(prefix := await reader.readexactly(_PREFIX.size))[1]
            recorded.append(prefix + await reader.readexactly(length))
            done.set()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            send(f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            await asyncio.wait_for(done.wait(), TIMEOUT_S)

    asyncio.run(run())
    return recorded[0]


def strangers(seed: int, n: int, hello: Hello, recorded: bytes, bomb: Path) -> Iterator[Stranger]:
    """Yield many strangers, drawn at random.

    Parameters
    ----------
    seed, n : int
    hello : Hello
        One that the endpoint would take from a process of its job.
    recorded : bytes
        A frame with a signed hello, of another job or for another challenge.
    bomb : Path
        The file that pickles would create.
    """
    generator = random.Random(seed)
    bytes_of = generator.randbytes
    message = frame(msgpack.packb(update(0).header()), number=1)
    pickled = dask_message(bomb)

    def random_bytes() -> Stranger:
        return Stranger(bytes_of(generator.randrange(1, 5000)), stays=generator.random() < 0.8)

    def random_frame() -> Stranger:
        numbers = [generator.getrandbits(generator.randrange(1, bits)) for bits in (33, 65, 65)]
        header = bytes_of(generator.randrange(200))
        return Stranger(frame(header, length=numbers[0], number=numbers[1], n_bytes=numbers[2]), stays=False)

    def unsigned() -> Stranger:
        return Stranger(frame(bytes_of(64) + hello.pack()) + message, waits=generator.random() < 0.5)

    def plain() -> Stranger:
        return Stranger(frame(hello.pack()) + message)

    def signed_by_another() -> Stranger:
        other, nonces = Secret(bytes_of(32)), bytes_of(64)
        return Stranger(frame(other.sign(b"hello", nonces, hello.pack()) + nonces[32:] + hello.pack()) + message)

    def replayed() -> Stranger:
        return Stranger(recorded + message, waits=generator.random() < 0.5)

    def truncated() -> Stranger:
        return Stranger(recorded[: generator.randrange(len(recorded))], stays=False)

    def flipped() -> Stranger:
        sent = bytearray(recorded)
        sent[generator.randrange(_PREFIX.size, len(sent))] ^= 1 << generator.randrange(8)
        return Stranger(bytes(sent))

    def too_long() -> Stranger:
        return Stranger(frame(bytes_of(5000)))

    def dask() -> Stranger:
        return Stranger(pickled)

    def framed_pickle() -> Stranger:
        return Stranger(frame(pickled[: generator.randrange(100, 4000)]))

    def port_scan() -> Stranger:
        return Stranger(b"", stays=False)

    kinds = [random_bytes, random_frame, unsigned, plain, signed_by_another, replayed, truncated, flipped, too_long,
             dask, framed_pickle, port_scan]  # fmt: skip
    for _ in range(n):
        yield generator.choice(kinds)()
