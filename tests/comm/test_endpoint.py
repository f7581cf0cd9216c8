"""Endpoints on chosen network interfaces and ports."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from singa_dask.comm.endpoint import Endpoint
from singa_dask.comm.wire import place_of
from singa_dask.errors import CommError
from tests.comm.ends import TIMEOUT_S, End, update


def free_ports(n: int) -> range:
    """Return some ports in a row that nobody uses."""
    for first in range(20000, 32000, n):
        with ExitStack() as stack:
            try:
                for port in range(first, first + n):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return range(first, first + n)
    raise AssertionError("no ports are free")


def test_each_endpoint_takes_the_first_free_port_of_a_range() -> None:
    ports = free_ports(3)
    with ExitStack() as stack:
        stack.enter_context(socket.create_server(("127.0.0.1", ports[0])))
        ends = [End(ports=ports) for _ in ports[1:]]
        for each in ends:
            stack.callback(each.close)
        assert [place_of(each.address) for each in ends] == [f"tcp://127.0.0.1:{port}" for port in ports[1:]]
        ends[0].send(ends[1].address, update(1))
        assert ends[1].messages.get(timeout=TIMEOUT_S).step == 1
        first, last = ports[0], ports[-1]
        with pytest.raises(CommError, match=rf"127\.0\.0\.1: all ports from {first} to {last} are taken.*--listen"):
            End(ports=ports)
        with pytest.raises(CommError, match=rf"port {first} is taken"):
            End(ports=ports[:1])


@pytest.mark.parametrize(
    ("interface", "host", "bind_host"),
    [
        ("", "10.0.0.7", "10.0.0.7"),
        ("lo", "127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2", "127.0.0.2"),
        ("0.0.0.0", "10.0.0.7", "0.0.0.0"),
        ("::", "10.0.0.7", "::"),
        ("::1", "::1", "::1"),
    ],
)
def test_an_interface_is_a_name_or_an_address(
    interface: str, host: str, bind_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = socket.getaddrinfo
    # a machine may have localhost as ::1 first
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda name, *a, **k: find({"localhost": "127.0.0.1"}.get(name, name), *a, **k)
    )
    found = Endpoint.of("tls://10.0.0.7", interface)
    assert (found.scheme, found.host, found.bind_host) == ("tls", host, bind_host)


def test_an_endpoint_of_ipv6() -> None:
    assert Endpoint.of("tcp://[::1]") == Endpoint("tcp", "::1", "::1")


def test_an_unknown_interface_is_named_with_those_that_are_there() -> None:
    with pytest.raises(CommError, match=r"'no-such-if0' is neither a network interface .*Its network interfaces: .*lo"):
        Endpoint.of("tcp://127.0.0.1", "no-such-if0")


def test_an_address_of_another_machine_is_named() -> None:
    with pytest.raises(CommError, match=r"port 0 of 192\.0\.2\.200: .*Expected an address of this machine"):
        End(interface="192.0.2.200")


def test_plain_tcp_is_refused_where_dask_requires_encryption() -> None:
    with pytest.raises(CommError, match="encryption required"):
        End(listen_args={"require_encryption": True})


def test_tls_without_certificates_is_refused() -> None:
    with pytest.raises(CommError, match="ssl_context"):
        End("tls://127.0.0.1")
