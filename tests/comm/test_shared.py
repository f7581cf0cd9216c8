"""Arrays through shared memory: the same messages as by sockets, and sockets where it is not to be had."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.comm import shared, wire
from singa_dask.comm.message import Address, Message, pack
from singa_dask.comm.shared import Offer, Segment, segment_bytes, take
from tests.comm.ends import End, end, update
from tests.comm.proxy import Proxy
from tests.comm.test_faults import lifetimes
from tests.comm.test_transport import security
from tests.runtime.processes import wait_until
from tests.selection import mostly_long, mostly_soak

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no anonymous files in memory")

SIZE = 1 << 18


def n_mapped() -> int:
    """Return how many segments this process has mapped."""
    return Path("/proc/self/maps").read_text().count("/memfd:singa-dask-")


def n_open() -> int:
    """Return how many segments this process has open."""
    links = (os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
    return sum("/memfd:singa-dask-" in link for link in links)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes of each piece that is written to shared memory."""
    sizes: list[int] = []
    write = Segment.write

    def counted(segment: Segment, piece: list[np.ndarray]) -> int | None:
        start = write(segment, piece)
        if start is not None:
            sizes.append(sum(part.size for part in piece))
        return start

    monkeypatch.setattr(Segment, "write", counted)
    return sizes


@pytest.fixture
def segment() -> tuple[Segment, Segment]:
    """Return one segment as its writer and its reader have it."""
    with closing(Offer(SIZE)) as offer:
        assert offer.taken() is None
        reader, writer = take(offer.name), offer.taken()
    assert reader is not None and writer is not None
    return writer, reader


def test_pieces_are_read_as_they_were_written(segment: tuple[Segment, Segment]) -> None:
    writer, reader = segment
    generator, n_full = random.Random(0), 0
    waiting: list[tuple[int, list[np.ndarray]]] = []

    def read() -> None:
        start, expected = waiting.pop(0)
        got = [np.zeros_like(part) for part in expected]
        reader.read(start, got)
        assert all(map(np.array_equal, got, expected))
        assert writer.release()

    for i in range(3000):
        piece = [np.full(generator.randrange(1, SIZE // 6), i % 251, np.uint8) for _ in range(3)]
        while (start := writer.write(piece)) is None:
            n_full += 1
            read()
        waiting.append((start, piece))
        if generator.random() < 0.1:
            while waiting:
                read()
    while waiting:
        read()
    assert n_full > 1000 and not writer.release()


def test_pieces_that_fit_exactly(segment: tuple[Segment, Segment]) -> None:
    writer, _ = segment
    half, quarter = ([np.zeros(SIZE // n, np.uint8)] for n in (2, 4))
    assert [writer.write(half), writer.write(half), writer.write(quarter)] == [0, SIZE // 2, None]
    assert writer.release()
    assert [writer.write(quarter), writer.write(quarter), writer.write(quarter)] == [0, SIZE // 4, None]
    for _ in range(3):
        assert writer.release()
    assert writer.write(half) == 0


def test_arrays_are_cut_without_regard_to_where_they_end(segment: tuple[Segment, Segment]) -> None:
    arrays = [np.random.default_rng(0).integers(0, 256, n, np.uint8) for n in (0, 5, SIZE, 0, SIZE // 2 - 5, 1, 0)]
    cut = list(segment[0].pieces(arrays))
    assert [sum(part.size for part in piece) for piece in cut] == [SIZE // 2] * 3 + [1]
    assert np.array_equal(np.concatenate([part for piece in cut for part in piece]), np.concatenate(arrays))
    assert not list(segment[0].pieces([np.empty(0, np.uint8)]))


@pytest.fixture(params=mostly_long(["tcp://127.0.0.1", "tls://127.0.0.1", "inproc://", "ws://127.0.0.1"], 2))
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[End, End]]:
    given = security() if request.param.startswith("tls") else {}
    with ExitStack() as stack:
        yield (
            end(stack, host=request.param, shared_bytes=SIZE, **given),
            end(stack, host=request.param, shared_bytes=SIZE, **given),
        )


def messages() -> list[Message]:
    """Return messages with arrays of all sizes, from none to several times the segment."""
    random_values = np.random.default_rng(0)
    sizes = [0, 3, 16_383, 16_384, 100_000, SIZE // 8, SIZE // 4, 3 * SIZE, 7, SIZE // 8 + 1, 20_000]
    alone = [update(i, random_values.normal(size=n).astype(np.float32), i) for i, n in enumerate(sizes)]
    several = Message("part", Address.stub(0), Address.stub(1), arrays=tuple(each.arrays[0] for each in alone))
    return [*alone, *pack(alone), several, *alone[::-1]]


def check(got: Message, expected: Message) -> None:
    """Check that a message has come as it was sent."""
    assert got.header() == expected.header()
    assert all(map(np.array_equal, got.all_arrays, expected.all_arrays))


def test_messages_are_those_of_sockets(ends: tuple[End, End], pieces: list[int]) -> None:
    a, b = ends
    sent = 3 * messages()
    for source, sink in (ends, ends[::-1]):
        for message in sent:
            source.send(sink.address, message)
    for receiver in ends:
        for message in sent:
            check(receiver.get(), message)
    by_stream = a.address.startswith(("tcp", "tls"))
    assert sum(pieces) == by_stream * 2 * sum(each.n_bytes for each in sent if each.n_bytes >= 1 << 16)
    assert a.transport.sent_bytes == b.transport.received_bytes == sum(message.n_bytes for message in sent)


def test_arrays_are_read_into_receive_buffers(stack: ExitStack, pieces: list[int]) -> None:
    memory = np.zeros(SIZE, np.float64)
    sender = end(stack, shared_bytes=SIZE)
    receiver = end(stack, shared_bytes=SIZE, receive_buffer=lambda message: memory)
    values = np.random.default_rng(1).normal(size=SIZE)
    sender.send(receiver.address, update(0, values))
    assert receiver.get().arrays[0] is memory and np.array_equal(memory, values)
    assert sum(pieces) == memory.nbytes


def test_nothing_stays_open_or_mapped() -> None:
    before = n_mapped()
    with ExitStack() as stack:
        pair = end(stack, shared_bytes=SIZE), end(stack, shared_bytes=SIZE)
        for source, sink in (pair, pair[::-1]):
            source.send(sink.address, update(0, np.zeros(SIZE)))
            sink.get()
        assert n_open() == 4 and n_mapped() == before + 4  # two ways, and both ends are this process
    assert n_open() == 0 and n_mapped() == before


@pytest.mark.parametrize("seed", mostly_soak(range(4), 4))
@pytest.mark.long
def test_a_reset_loses_and_repeats_nothing(stack: ExitStack, seed: int, pieces: list[int]) -> None:
    """Each new connection has shared memory of its own, which goes with it."""
    before = n_mapped()
    ends = end(stack, shared_bytes=SIZE), end(stack, shared_bytes=SIZE)
    links = []
    for i, each in enumerate(ends):
        links.append(Proxy(each.address, lifetime=lifetimes(2 * seed + i, 6000)))
        stack.callback(links[-1].close)
    n = 600
    sizes = random.Random(seed).choices(range(8192, 40_000), k=n)  # none small enough for sockets
    arrays = [np.full(size, i) for i, size in enumerate(sizes)]
    for step in range(n):
        ends[0].send(links[1].address, update(step, arrays[step]))
        ends[1].send(links[0].address, update(step, arrays[-step]))
    for receiver, sign in zip(ends, (-1, 1), strict=True):
        for step in range(n):
            check(receiver.get(), update(step, arrays[sign * step]))
    for each, link in zip(ends, links, strict=True):
        assert link.n_resets > 10
        assert each.messages.empty() and each.lost.empty()
    assert sum(pieces) > 2 * sum(array.nbytes for array in arrays)
    for each in ends:
        each.close()
    assert n_mapped() == before


@pytest.mark.long
def test_a_reader_that_stops_does_not_hold_up_the_sender_for_ever(stack: ExitStack) -> None:
    sender, receiver = end(stack, shared_bytes=SIZE, retry_s=2.0, timeout_s=2.0), end(stack, shared_bytes=SIZE)
    link = Proxy(receiver.address)
    stack.callback(link.close)
    sender.send(link.address, update(0))
    receiver.get()
    link.freeze()  # what is written is not read, and nothing is released
    sent = [update(step, np.full(SIZE // 8, step)) for step in range(1, 9)]
    for message in sent:
        sender.send(link.address, message)
    for message in sent:
        check(receiver.get(), message)
    assert sender.lost.empty()


def not_made(*given: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def elsewhere(path: str) -> str:
    return "/dev/null"


def too_late(fd: int, offset: int, size: int) -> None:
    if size > 1 << 16:
        not_made()


REFUSALS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no such files": lambda patch: patch.delattr(os, "memfd_create"),
    "none can be made": lambda patch: patch.setattr(os, "memfd_create", not_made),
    "no memory": lambda patch: patch.setattr(os, "posix_fallocate", not_made),
    "no memory for all of it": lambda patch: patch.setattr(os, "posix_fallocate", too_late),
    "another container": lambda patch: patch.setattr(shared.os, "readlink", elsewhere),
    "forbidden": lambda patch: patch.setattr(wire, "take", lambda name: None),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_without_shared_memory_arrays_go_by_socket(
    stack: ExitStack, refusal: str, monkeypatch: pytest.MonkeyPatch, pieces: list[int]
) -> None:
    REFUSALS[refusal](monkeypatch)
    before = n_mapped()
    sender, receiver = end(stack, shared_bytes=SIZE), end(stack, shared_bytes=SIZE)
    for message in messages():
        sender.send(receiver.address, message)
    for message in messages():
        check(receiver.get(), message)
    assert not pieces and sender.lost.empty()
    for each in (sender, receiver):
        each.close()
    assert n_mapped() == before


def test_only_what_was_offered_is_taken(tmp_path: Path) -> None:
    with closing(Offer(SIZE)) as offer, (tmp_path / "file").open("w+b") as file:
        path, name = offer.name.split()
        file.write(bytes(SIZE))
        file.flush()
        for other in (
            f"{path} {name}x",
            f"/proc/self/fd/{file.fileno()} {name}",
            f"{tmp_path}/file {name}",
            path,
            "",
            "x",
        ):
            assert take(other) is None, other
        assert offer.taken() is None and take(offer.name) is not None


PEER = f"""
import sys
import numpy as np
from tests.comm.ends import End, update
peer = End(process=1, shared_bytes={SIZE})
print(peer.address, flush=True)
address = sys.stdin.readline().strip()
for step in range(100):
    peer.send(address, update(step, np.full({SIZE}, step)))
    assert (peer.get().arrays[0] == step).all()
    print(step, flush=True)
"""


@pytest.mark.long
def test_a_killed_process_leaves_nothing(stack: ExitStack, pieces: list[int]) -> None:
    before = n_mapped()
    mine = end(stack, shared_bytes=SIZE)
    command = [sys.executable, "-c", PEER]
    peer = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    stack.callback(peer.kill)
    assert peer.stdin is not None and peer.stdout is not None
    address = peer.stdout.readline().strip()
    print(mine.address, file=peer.stdin, flush=True)
    for step in range(3):
        got = mine.get()
        check(got, update(step, np.full(SIZE, step)))
        mine.send(address, got)
        assert int(peer.stdout.readline()) == step
    assert pieces and n_mapped() == before + 2
    peer.kill()
    mine.transport.cut(address)
    wait_until(lambda: n_mapped() == before, "all is unmapped")
    assert n_open() == 0 and not [name for name in os.listdir("/dev/shm") if "singa" in name]


def test_the_memory_of_segments_is_bounded() -> None:
    assert segment_bytes(0, None) == 0
    for n_peers in (1, 3, 15, 63):
        for limit in (None, 0, 4 << 30, 500 << 20):
            size = segment_bytes(n_peers, limit)
            assert size % os.sysconf("SC_PAGE_SIZE") == 0
            assert n_peers * size <= min(64 << 20, (limit or 1 << 40) // 32)
    assert segment_bytes(1, None) == 8 << 20 and segment_bytes(20, 100 << 20) == 0
