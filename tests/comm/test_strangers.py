"""Strangers at an endpoint change nothing, and those of the job still get in; over TLS they get no byte."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import psutil
import pytest
from distributed.security import Security

from singa_dask.comm.greeting import Hello
from singa_dask.comm.wire import connect, place_of
from tests.comm.ends import TIMEOUT_S, TOKEN, End, end, update
from tests.runtime.processes import wait_until

HELLO = Hello(TOKEN, "job", 0, 1, "tcp://127.0.0.1:1", "a")


def test_port_scans_and_random_bytes_change_nothing(stack: ExitStack) -> None:
    memory = np.zeros(1000)
    receiver = end(stack, receive_buffer=lambda message: memory)
    place = ("127.0.0.1", int(place_of(receiver.address).rpartition(":")[2]))
    process, generator = psutil.Process(), random.Random(0)
    n_fds = process.num_fds()
    for step in range(5):
        for sent in (b"", b"GET / HTTP/1.0\r\n\r\n", bytes(8), generator.randbytes(7)):
            with socket.create_connection(place, TIMEOUT_S) as plain:
                plain.sendall(sent)
        newcomer = end(stack)
        newcomer.send(receiver.address, update(step))
        assert receiver.get().step == step
        newcomer.close()
    assert not memory.any() and receiver.messages.empty()
    wait_until(lambda: process.num_fds() <= n_fds, "no socket is left")


@pytest.mark.parametrize("host", ["tcp://127.0.0.1", "ws://127.0.0.1"])
def test_who_says_no_hello_is_dropped(stack: ExitStack, host: str) -> None:
    receiver = end(stack, host=host, timeout_s=0.3)

    async def run() -> None:
        wire: Any = await connect(receiver.address, TIMEOUT_S, {})
        with pytest.raises(OSError):
            await asyncio.wait_for(wire.read(), TIMEOUT_S)
        wire.close()

    began = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began < TIMEOUT_S / 2


# -- TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def security() -> Security:
    pytest.importorskip("cryptography", reason="makes the certificates of this test")
    return Security.temporary()


def tls_end(stack: ExitStack, security: Security) -> End:
    args = security.get_listen_args("worker"), security.get_connection_args("worker")
    return end(stack, host="tls://127.0.0.1", listen_args=args[0], connect_args=args[1], retry_s=1.0)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.0\r\n\r\n", HELLO.pack(), bytes(range(256)) * 10])
def test_over_tls_plain_bytes_are_answered_by_an_alert_at_most(
    stack: ExitStack, security: Security, sent: bytes
) -> None:
    receiver = tls_end(stack, security)
    host, port = place_of(receiver.address).removeprefix("tls://").split(":")
    with socket.create_connection((host, int(port)), TIMEOUT_S) as plain:
        got = b""
        # the receiver may have closed it already
        with suppress(OSError):
            plain.sendall(sent)
            plain.shutdown(socket.SHUT_WR)
            while part := plain.recv(1 << 16):
                got += part
    assert got == b"" or (got[0], len(got)) == (21, 7)  # the record of an alert


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("has_certificate", [False, True])
def test_over_tls_nobody_gets_a_byte_without_a_certificate_of_the_cluster(
    stack: ExitStack, security: Security, version: ssl.TLSVersion, has_certificate: bool
) -> None:
    receiver = tls_end(stack, security)
    host, port = place_of(receiver.address).removeprefix("tls://").split(":")
    context = Security.temporary().get_connection_args("worker")["ssl_context"] if has_certificate else None
    context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    got = b""
    with socket.create_connection((host, int(port)), TIMEOUT_S) as plain, suppress(OSError):
        with context.wrap_socket(plain) as wrapped:
            got = wrapped.recv(1 << 16)
    assert got == b""
    peer = tls_end(stack, security)
    peer.send(receiver.address, update(3))
    assert receiver.get().step == 3


def test_a_sender_with_certificates_of_another_authority_is_told(stack: ExitStack, security: Security) -> None:
    receiver, stranger = tls_end(stack, security), tls_end(stack, Security.temporary())
    stranger.send(receiver.address, update(0))
    assert "TLS" in stranger.lost.get(timeout=TIMEOUT_S)[1]
    assert receiver.messages.empty()
