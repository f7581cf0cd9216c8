"""Transports over bad connections: every message arrives, once and in order, with its array."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from singa_dask.comm import outbox
from singa_dask.comm.message import Address, Message
from singa_dask.comm.wire import Wire
from tests.comm.ends import TIMEOUT_S, End, end, update
from tests.comm.proxy import Proxy
from tests.runtime.processes import wait_until
from tests.selection import mostly_long, mostly_soak


def proxy(stack: ExitStack, target: End, **given: Any) -> Proxy:
    opened = Proxy(target.address, **given)
    stack.callback(opened.close)
    return opened


def lifetimes(seed: int, mean: float) -> Callable[[], float]:
    generator = random.Random(seed)
    return lambda: generator.expovariate(1 / mean)


@pytest.mark.long
def test_one_in_a_hundred_messages_meets_a_reset(stack: ExitStack) -> None:
    """In both directions; the connection dies at any byte, in hellos and acknowledgements too."""
    ends = end(stack), end(stack)
    proxies = [proxy(stack, each, lifetime=lifetimes(i, 100_000)) for i, each in enumerate(ends)]
    n = 3000
    arrays = [np.full(size, size, np.float32) for size in random.Random(0).choices(range(500), k=n)]
    for step in range(n):
        ends[0].send(proxies[1].address, update(step, arrays[step]))
        ends[1].send(proxies[0].address, update(step, arrays[-step]))
    for receiver, sign in zip(ends, (-1, 1), strict=True):
        for step in range(n):
            got = receiver.get()
            assert got.step == step
            assert np.array_equal(got.arrays[0], arrays[sign * step])
    for each, link in zip(ends, proxies, strict=True):
        assert link.n_resets > 10
        assert each.transport.received_bytes == each.transport.sent_bytes == sum(array.nbytes for array in arrays)
        assert each.messages.empty() and each.lost.empty()


@pytest.mark.parametrize("seed", mostly_soak(range(3), 3))
@pytest.mark.long
def test_arrays_are_used_again_as_soon_as_they_are_answered(stack: ExitStack, seed: int) -> None:
    """Both sides change an array the moment that it may change; no resent message may have the new values."""
    n_slices, n_steps, size = 4, 30, 20_000
    buffers = [np.zeros(size, np.int64) for _ in range(n_slices)]
    values = [np.zeros(size, np.int64) for _ in range(n_slices)]
    grads = [np.zeros(size, np.int64) for _ in range(n_slices)]
    wrong: list[str] = []

    def on_update(message: Message) -> None:
        piece = message.slice
        if not (message.arrays[0] is buffers[piece] and (buffers[piece] == message.step).all()):
            wrong.append(f"update {message.step} of slice {piece}")
        values[piece] += buffers[piece]
        server.send(
            to_worker.address, Message("r-update", message.dst, message.src, slice=piece, arrays=(values[piece],))
        )

    server = end(stack, on_message=on_update, receive_buffer=lambda message: buffers[message.slice])
    worker = end(stack)
    to_server = proxy(stack, server, lifetime=lifetimes(seed, 4 * grads[0].nbytes))
    to_worker = proxy(stack, worker, lifetime=lifetimes(seed + 9, 4 * grads[0].nbytes))
    steps = [0] * n_slices
    for piece in range(n_slices):
        worker.send(to_server.address, update(0, grads[piece], piece))
    while any(step < n_steps for step in steps):
        answer = worker.get()
        piece = answer.slice
        steps[piece] += 1
        assert (answer.arrays[0] == sum(range(steps[piece]))).all()
        if steps[piece] < n_steps:
            grads[piece][:] = steps[piece]
            worker.send(to_server.address, update(steps[piece], grads[piece], piece))
    assert not wrong
    assert to_server.n_resets + to_worker.n_resets > 10


def test_a_cut_that_is_mended_in_time(stack: ExitStack) -> None:
    sender, receiver = end(stack), end(stack)
    link = proxy(stack, receiver)
    sender.send(link.address, update(0))
    assert receiver.get().step == 0
    link.cut()
    for step in range(1, 20):
        sender.send(link.address, update(step))
    link.mend()
    assert [receiver.get().step for _ in range(1, 20)] == list(range(1, 20))
    assert sender.lost.empty()


@pytest.mark.long
def test_a_connection_that_is_open_on_one_side_only(stack: ExitStack) -> None:
    sender, receiver = end(stack, retry_s=2.0, timeout_s=2.0), end(stack)
    link = proxy(stack, receiver)
    for step in range(0, 20, 10):
        sender.send(link.address, update(step, np.full(100_000, step)))
        assert receiver.get().step == step
        link.freeze()  # nobody is told
        for following in range(step + 1, step + 10):
            sender.send(link.address, update(following, np.full(100_000, following)))
        for following in range(step + 1, step + 10):
            got = receiver.get()
            assert got.step == following and (got.arrays[0] == following).all()
    assert sender.lost.empty()


def test_a_peer_that_does_not_answer_is_lost_with_a_reason_that_is_true(stack: ExitStack) -> None:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))  # the system accepts, and nobody reads
    sender = end(stack, retry_s=0.5, timeout_s=10.0)
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    sender.send(address, update(0))
    lost, reason = sender.lost.get(timeout=TIMEOUT_S)
    assert (lost, reason) == (address, "no connection for 0.5 s: it does not answer")


def test_a_slow_connection(stack: ExitStack) -> None:
    sender, receiver = end(stack), end(stack)
    link = proxy(stack, receiver, delay_s=0.01)
    for step in range(20):
        sender.send(link.address, update(step, np.full(10_000, step)))
    assert [receiver.get().arrays[0][-1] for _ in range(20)] == list(range(20))


@pytest.mark.parametrize("host", mostly_long(["tcp://127.0.0.1", "inproc://", "ws://127.0.0.1"], 3))
def test_frames_that_come_twice_or_in_another_order(
    stack: ExitStack, host: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    generator, honest = random.Random(1), outbox.connect

    async def connect(*given: Any) -> Wire:
        wire, kept = await honest(*given), []
        write = wire.write

        def mix(number: int, message: Message) -> None:
            kept.append((number, message))
            if generator.random() < 0.02 and len(kept) == 1:
                return  # it comes after the next one
            for each in reversed(kept):
                write(*each)
                if generator.random() < 0.2:
                    write(*each)
            kept.clear()

        monkeypatch.setattr(wire, "write", mix)
        return wire

    monkeypatch.setattr(outbox, "connect", connect)
    sender, receiver = end(stack, host=host), end(stack, host=host)
    for step in range(300):
        sender.send(receiver.address, update(step, np.full(step, step)))
    for step in range(300):
        got = receiver.get()
        assert got.step == step and got.arrays[0].tolist() == [step] * step
    sender.close()
    receiver.close()
    assert receiver.messages.empty() and sender.lost.empty()
    assert "Expected: " in caplog.text


def test_a_peer_that_was_replaced_at_the_same_address_is_lost(stack: ExitStack) -> None:
    sender, receiver, other = end(stack), end(stack), end(stack)
    link = proxy(stack, receiver)
    for step in range(300):
        sender.send(link.address, update(step))
    for _ in range(300):
        receiver.get()
    (sent,) = sender.transport._outboxes.values()
    wait_until(lambda: sent._arrived > 0, "some are acknowledged")
    link.target = other.address
    link.cut()
    link.mend()
    sender.send(link.address, update(300))
    assert "Expected: " in sender.lost.get(timeout=TIMEOUT_S)[1]
    assert other.messages.empty()


def test_a_message_that_cannot_be_sent_is_reported(stack: ExitStack) -> None:
    sender, receiver = end(stack), end(stack)
    sender.send(receiver.address, Message("put", Address.worker(0, 0), Address.server(0, 0), info={"n": object()}))
    address, reason = sender.lost.get(timeout=TIMEOUT_S)
    assert address == receiver.address and "put from worker-0-0 to server-0-0 cannot be sent" in reason


def test_a_dropped_peer_is_forgotten_and_can_be_sent_to_again(stack: ExitStack) -> None:
    sender, receiver = end(stack), end(stack)
    link = proxy(stack, receiver)
    sender.send(link.address, update(0))
    assert receiver.get().step == 0
    link.cut()
    sender.send(link.address, update(1))
    sender.transport.cut(link.address)
    sender.transport.cut("tcp://127.0.0.1:1")  # nobody
    link.mend()
    sender.send(link.address, update(2))
    assert receiver.get().step == 2
    assert sender.lost.empty()
