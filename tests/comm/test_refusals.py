"""What a transport refuses, which peers it reports as lost, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import Any

import msgpack
import numpy as np
import pytest
from distributed.comm.addressing import get_address_host_port

from singa_dask.comm.greeting import Hello, introduce
from singa_dask.comm.wire import RefusedError, connect, place_of
from singa_dask.errors import CommError
from tests.comm.ends import TIMEOUT_S, TOKEN, End, end, transport_threads, update
from tests.comm.proxy import Proxy
from tests.selection import mostly_long


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    queue: SimpleQueue[str] = SimpleQueue()
    logger = logging.getLogger("singa_dask.comm.inbox")
    monkeypatch.setattr(logger, "warning", lambda text, *args, **_: queue.put(text % args))
    return queue


def guarded(stack: ExitStack, **given: Any) -> tuple[End, np.ndarray]:
    """Return a receiver, and the memory that its messages are read into."""
    memory = np.zeros(1000)
    return end(stack, receive_buffer=lambda message: memory, **given), memory


@pytest.mark.parametrize("host", ["tcp://127.0.0.1", "inproc://", "ws://127.0.0.1"])
@pytest.mark.parametrize("foreign", [{"job": "other"}, {"incarnation": 1}, {"token": "of others"}])
def test_a_process_of_another_job_or_incarnation_is_refused(
    stack: ExitStack, warnings: SimpleQueue[str], host: str, foreign: dict[str, Any]
) -> None:
    receiver, memory = guarded(stack, host=host, job="mine", incarnation=2)
    stranger = end(stack, host=host, **{"job": "mine", "incarnation": 2, "process": 7, **foreign})
    stranger.send(receiver.address, update(0, np.ones(1000)))
    address, reason = stranger.lost.get(timeout=TIMEOUT_S)
    assert address == receiver.address
    for text in (reason, warnings.get(timeout=TIMEOUT_S)):
        assert "process 7 of job" in text and "Expected: job 'mine', incarnation 2" in text
    assert not memory.any() and receiver.messages.empty()


def test_a_process_that_was_replaced_is_refused_when_it_wakes_up(stack: ExitStack, warnings: SimpleQueue[str]) -> None:
    receiver, sleeper = end(stack), end(stack, process=7)
    sleeper.send(receiver.address, update(0))
    assert receiver.get().step == 0
    receiver.transport.cut(sleeper.address)
    # it may come just before the cut; no matter, as nothing comes after it
    sleeper.send(receiver.address, update(1))
    address, reason = sleeper.lost.get(timeout=TIMEOUT_S)
    assert address == receiver.address
    for text in (reason, warnings.get(timeout=TIMEOUT_S)):
        assert f"process 7 at {place_of(sleeper.address)} was replaced by another." in text


def test_a_process_on_the_port_of_one_that_it_replaces_is_welcome(stack: ExitStack) -> None:
    receiver, old = end(stack), end(stack, process=7)
    port = get_address_host_port(place_of(old.address))[1]
    old.send(receiver.address, update(0))
    receiver.send(old.address, update(1))
    assert [receiver.get().step, old.get().step] == [0, 1]
    receiver.transport.cut(old.address)
    old.close()
    new = end(stack, process=7, ports=[port])
    assert place_of(new.address) == place_of(old.address)
    new.send(receiver.address, update(2))
    receiver.send(new.address, update(3))
    assert [receiver.get().step, new.get().step] == [2, 3]
    # a connection that the old one has opened may be served at any time
    with pytest.raises(RefusedError, match="was replaced by another"):
        talk(receiver.address, Hello(TOKEN, "job", 0, 7, old.address, "a").pack())


def talk(address: str, hello: bytes, speak: Callable[[Any], None] = lambda wire: None) -> None:
    """Say a hello, call ``speak`` with the wire, and wait until the other end has closed it."""

    async def run() -> None:
        wire: Any = await connect(address, TIMEOUT_S, {})
        try:
            with suppress(CommError):
                await introduce(wire, hello)
                speak(wire)
            await asyncio.wait_for(wire._stream.read_until_close(), TIMEOUT_S)
        finally:
            wire.close()

    asyncio.run(run())


def test_another_protocol_is_refused(stack: ExitStack, warnings: SimpleQueue[str]) -> None:
    receiver, memory = guarded(stack)
    with pytest.raises(RefusedError, match="protocol 99"):
        talk(receiver.address, Hello(TOKEN, "job", 0, 1, "", "a", version=99).pack())
    assert "protocol 99" in warnings.get(timeout=TIMEOUT_S)
    for hello in (b"", b"\xff", msgpack.packb(3), msgpack.packb({"job": "job"}), msgpack.packb({"colour": "red"})):
        talk(receiver.address, hello)
        assert "not a hello" in warnings.get(timeout=TIMEOUT_S)
    assert not memory.any() and receiver.messages.empty()


def test_random_bytes_harm_nothing(stack: ExitStack, warnings: SimpleQueue[str]) -> None:
    receiver, memory = guarded(stack)
    generator = random.Random(0)

    def speak(wire: Any) -> None:
        wire._stream.write(generator.randbytes(generator.randrange(100, 5000)))

    for _ in range(20):
        talk(receiver.address, Hello(TOKEN, "job", 0, 1, "", "a").pack(), speak)
        assert "not of this protocol" in warnings.get(timeout=TIMEOUT_S)
    assert not memory.any() and receiver.messages.empty()
    end(stack).send(receiver.address, update(5))
    assert receiver.get().step == 5


def test_a_message_with_a_wrong_header_is_refused_for_good(stack: ExitStack, warnings: SimpleQueue[str]) -> None:
    receiver, memory = guarded(stack)
    for i, header in enumerate([{"kind": "put"}, {**update(0).header(), "arrays": [["<f8", [1000]]]}]):
        sender = end(stack)
        odd = update(0, np.zeros(3))
        object.__setattr__(odd, "header", lambda header=header: header)
        sender.send(receiver.address, odd)
        assert "not of this protocol" in warnings.get(timeout=TIMEOUT_S), i
        assert "not of this protocol" in sender.lost.get(timeout=TIMEOUT_S)[1]
    assert not memory.any() and receiver.messages.empty()


@pytest.mark.parametrize("was_there", mostly_long([True, False], 2))
def test_a_peer_that_is_gone_is_reported_once(stack: ExitStack, was_there: bool) -> None:
    sender, receiver = end(stack, retry_s=0.5), end(stack)
    if was_there:
        sender.send(receiver.address, update(0))
        receiver.get()
    receiver.close()
    for step in range(3):
        sender.send(receiver.address, update(step))
    address, reason = sender.lost.get(timeout=TIMEOUT_S)
    assert address == receiver.address and "no connection for 0.5 s" in reason
    sender.send(receiver.address, update(3))
    sender.close()
    assert sender.lost.empty()


@pytest.mark.long
@pytest.mark.parametrize("host", ["tcp://127.0.0.1", "inproc://", "ws://127.0.0.1"])
def test_a_peer_that_reads_nothing_more_is_reported(stack: ExitStack, host: str) -> None:
    blocked = threading.Event()
    stack.callback(blocked.set)
    receiver = end(stack, host=host, on_message=lambda message: blocked.wait(TIMEOUT_S) and None)
    stack.callback(blocked.set)
    sender = end(stack, host=host, retry_s=1.0, timeout_s=0.5)
    for step in range(20):
        sender.send(receiver.address, update(step, np.zeros(1 << 17)))
    address, reason = sender.lost.get(timeout=TIMEOUT_S)
    assert address == receiver.address and "no connection for 1 s" in reason


@pytest.mark.long
def test_a_peer_that_answers_but_takes_nothing_is_reported(stack: ExitStack) -> None:
    sender, receiver = end(stack, retry_s=1.0), end(stack)
    link = Proxy(receiver.address, lifetime=lambda: 5000)  # enough for the hello
    stack.callback(link.close)
    sender.send(link.address, update(0, np.zeros(1 << 17)))
    assert "connections broke" in sender.lost.get(timeout=TIMEOUT_S)[1]
    assert receiver.messages.empty()


# -- the end ----------------------------------------------------------------------------------------


def sockets() -> set[str]:
    """Return the open sockets of this process."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


def unconnected(sender: End, receiver: End, link: Proxy) -> None:
    pass


def connecting(sender: End, receiver: End, link: Proxy) -> None:
    sender.send(link.address, update(0))


def connected(sender: End, receiver: End, link: Proxy) -> None:
    sender.send(link.address, update(0))
    receiver.get()


def writing(sender: End, receiver: End, link: Proxy) -> None:
    for step in range(10):
        sender.send(link.address, update(step, np.zeros(1 << 20)))
    receiver.get()


def half_open(sender: End, receiver: End, link: Proxy) -> None:
    connected(sender, receiver, link)
    link.freeze()
    sender.send(link.address, update(1, np.zeros(1 << 20)))


def waiting_for_an_answer(sender: End, receiver: End, link: Proxy) -> None:
    link.pause()
    sender.send(link.address, update(0))


def trying_again(sender: End, receiver: End, link: Proxy) -> None:
    connected(sender, receiver, link)
    link.cut()
    sender.send(link.address, update(1))


def lost(sender: End, receiver: End, link: Proxy) -> None:
    trying_again(sender, receiver, link)
    sender.lost.get(timeout=TIMEOUT_S)


def dropped(sender: End, receiver: End, link: Proxy) -> None:
    writing(sender, receiver, link)
    sender.transport.cut(link.address)


STATES = [
    unconnected,
    connecting,
    connected,
    writing,
    half_open,
    waiting_for_an_answer,
    trying_again,
    lost,
    dropped,
]


@pytest.mark.parametrize("receiver_first", mostly_long([False, True], 2))
@pytest.mark.parametrize("state", STATES)
def test_close_leaves_no_thread_and_no_socket(state: Callable[[End, End, Proxy], None], receiver_first: bool) -> None:
    threads, before = transport_threads(), sockets()
    sender, receiver = End(retry_s=0.5), End()
    link = Proxy(receiver.address)
    state(sender, receiver, link)
    for each in (receiver, sender) if receiver_first else (sender, receiver):
        each.close()
        each.close()
        each.send(link.address, update(9))  # changes nothing
        each.transport.cut(link.address)
    link.close()
    assert transport_threads() <= threads
    gc.collect()  # warns of a socket that is open
    assert sockets() <= before
