"""Strangers at an endpoint: nothing runs, nothing changes, nothing leaks, and those of the job still get in."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import ssl
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import psutil
import pytest
from distributed.comm.core import listen as dask_listen
from distributed.protocol import dumps, loads
from distributed.protocol.serialize import to_serialize
from distributed.security import Security

from singa_dask.comm import transport
from singa_dask.comm.greeting import Hello, Secret, introduce
from singa_dask.comm.wire import connect
from tests.comm.ends import SECRET, TIMEOUT_S, End, end, update
from tests.comm.strangers import CHALLENGE_BYTES, Stranger, dask_message, frame, intrude, record_hello, strangers
from tests.runtime.processes import wait_until

HELLO = Hello("job", 0, 1, "tcp://127.0.0.1:1", "a")


def test_many_strangers_change_nothing(stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those of the same job get in while they come; a hello of the job itself opens no second connection."""
    memory = np.zeros(1000)
    receiver = end(stack, receive_buffer=lambda message: memory)
    sender = end(stack)
    sender.send(receiver.address, update(0, np.ones(1000)))
    receiver.get()
    recorded = record_hello(lambda address: sender.send(address, update(0)))
    process, bomb = psutil.Process(), tmp_path / "bomb"
    n_fds = process.num_fds()
    memory[:] = 0
    for seed in range(3):
        got = intrude(receiver.address, strangers(seed, 200, HELLO, recorded, bomb))
        assert 0 < got <= CHALLENGE_BYTES
        assert not memory.any() and receiver.messages.empty() and not bomb.exists()
        newcomer = end(stack)
        newcomer.send(receiver.address, update(seed))
        assert receiver.get().step == seed
        newcomer.close()
    wait_until(lambda: process.num_fds() <= n_fds, "no socket is left")
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(told) < 20 and sender.lost.empty()


def test_a_pickle_runs_in_dasks_own_listener(tmp_path: Path) -> None:
    """Otherwise the tests here would show nothing."""
    bomb = tmp_path / "bomb"

    async def run() -> None:
        listener = dask_listen("tcp://127.0.0.1:0", lambda comm: None)
        await listener.start()
        address = str(listener.contact_address)
        await asyncio.to_thread(intrude, address, iter([Stranger(dask_message(bomb), stays=False)]))
        await asyncio.to_thread(wait_until, bomb.exists, "it has run")
        listener.stop()
        listener.abort_handshaking_comms()

    asyncio.run(run())


def test_a_pickle_of_a_peer_does_not_run_either(stack: ExitStack, tmp_path: Path) -> None:
    receiver, bomb = end(stack), tmp_path / "bomb"
    pickled = dask_message(bomb)
    headers = [
        pickled,
        msgpack.packb({"__Pickled__": 1}),
        msgpack.packb({**update(0).header(), "info": {"__Pickled__": 1}}),
    ]

    async def run(sent: bytes) -> None:
        wire: Any = await connect(receiver.address, TIMEOUT_S, {})
        await introduce(wire, SECRET, HELLO.pack())
        wire._stream.write(sent)
        with suppress(OSError):
            await asyncio.wait_for(wire._stream.read_until_close(), TIMEOUT_S)
        wire.close()

    for sent in [pickled, *(frame(header, number=1) for header in headers[:2])]:
        asyncio.run(run(sent))
    assert receiver.messages.empty() and not bomb.exists()


@pytest.mark.parametrize("host", ["tcp://127.0.0.1", "inproc://", "ws://127.0.0.1"])
def test_who_has_another_secret_neither_sends_nor_receives(stack: ExitStack, host: str) -> None:
    receiver = end(stack, host=host)
    stranger = end(stack, host=host, secret=Secret.new(), retry_s=0.5)
    stranger.send(receiver.address, update(0, np.ones(1000)))
    assert "no connection for 0.5 s" in stranger.lost.get(timeout=TIMEOUT_S)[1]
    assert receiver.messages.empty()


def test_nothing_is_sent_to_a_listener_without_the_secret(stack: ExitStack) -> None:
    """As when another program has taken the port of a lost process."""
    taken: list[bytes] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(frame(bytes(32)))
                    taken.append(connection.recv(1 << 16))
                    connection.sendall(frame(bytes(32)))
                    taken.append(connection.recv(1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        sender = end(stack, retry_s=0.3)
        sender.send(f"tcp://127.0.0.1:{listener.getsockname()[1]}", update(0, np.ones(1000)))
        assert "does not know the secret" in sender.lost.get(timeout=TIMEOUT_S)[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(TIMEOUT_S)
    assert taken[0] and not any(taken[1::2])


def test_those_who_wait_in_silence_hold_few_sockets(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_WAITING", 16)
    receiver = end(stack, timeout_s=TIMEOUT_S)
    host, port = receiver.address.removeprefix("tcp://").split(":")
    n_fds = psutil.Process().num_fds()
    silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(60)]
    for each in silent[::2]:
        each.sendall(b"S")
    end(stack).send(receiver.address, update(1))
    assert receiver.get().step == 1
    for each in silent[:-16]:
        each.settimeout(TIMEOUT_S)
        with suppress(ConnectionResetError):
            assert len(each.recv(1 << 16)) <= CHALLENGE_BYTES
            assert each.recv(1) == b""
    assert len(receiver.transport._inbox._waiting) <= 16
    assert psutil.Process().num_fds() < n_fds + 60 + 16 + 10


def test_who_sends_a_byte_at_a_time_is_dropped(stack: ExitStack) -> None:
    receiver = end(stack, timeout_s=0.3)
    host, port = receiver.address.removeprefix("tcp://").split(":")
    slow = stack.enter_context(socket.create_connection((host, int(port))))
    slow.settimeout(0.02)
    for byte in frame(bytes(4000), length=4000) * 10:
        try:
            slow.sendall(bytes([byte]))
            if slow.recv(1 << 16) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    else:
        pytest.fail("the connection is still open")


# -- TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def security() -> Security:
    pytest.importorskip("cryptography", reason="makes the certificates of this test")
    return Security.temporary()


def tls_end(stack: ExitStack, security: Security) -> End:
    args = security.get_listen_args("worker"), security.get_connection_args("worker")
    return end(stack, host="tls://127.0.0.1", listen_args=args[0], connect_args=args[1], retry_s=1.0)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.0\r\n\r\n", frame(HELLO.pack()), bytes(range(256)) * 10])
def test_over_tls_plain_bytes_are_answered_by_an_alert_at_most(
    stack: ExitStack, security: Security, sent: bytes
) -> None:
    receiver = tls_end(stack, security)
    host, port = receiver.address.removeprefix("tls://").split(":")
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
    stack: ExitStack, security: Security, version: ssl.TLSVersion, has_certificate: bool, tmp_path: Path
) -> None:
    receiver = tls_end(stack, security)
    host, port = receiver.address.removeprefix("tls://").split(":")
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


# -- the secret -------------------------------------------------------------------------------------


def test_a_secret_shows_in_no_text_and_no_pickle() -> None:
    secret = Secret(b"k" * 32)
    texts = [repr(secret), str(secret), f"{secret}", repr(to_serialize(secret)), repr({"secret": secret})]
    assert not any("kkk" in text for text in texts)
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_a_secret_travels_with_messages_of_dask() -> None:
    secret = Secret.new()
    arrived = loads(dumps({"placement": {"secret": to_serialize(secret)}}, serializers=["dask"], on_error="raise"))
    assert arrived["placement"]["secret"].verify(
        secret.sign(b"hello", bytes(64), b"text"), b"hello", bytes(64), b"text"
    )


def test_secrets_differ() -> None:
    signatures = {Secret.new().sign(b"hello", bytes(64), b"text") for _ in range(10)}
    assert len(signatures) == 10 and {len(each) for each in signatures} == {Secret.n_signature}
