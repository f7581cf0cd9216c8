"""Endpoint: the host and the ports that a process of a job listens on."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from distributed.utils import get_ip_interface

from singa_dask.errors import CommError

ANY_PORT = (0,)


@dataclass(frozen=True)
class Endpoint:
    """The host and the ports that a process of a job listens on.

    Attributes
    ----------
    scheme : str
    host : str
        Where other processes reach it.
    bind_host : str
        IP address that it listens on: that of ``host``, or of all interfaces.
    ports : sequence of int
        To choose from; 0 stands for any.
    """

    scheme: str
    host: str
    bind_host: str
    ports: Sequence[int] = ANY_PORT

    @classmethod
    def of(cls, address: str, interface: str = "", ports: Sequence[int] = ANY_PORT) -> Endpoint:
        """Find an endpoint for a job on a Dask worker.

        Parameters
        ----------
        address : str
            Scheme and host of the Dask worker, e.g. ``"tcp://10.0.0.7"``.
        interface : str
            Name of a network interface, an IP address or a host name of this machine; by default the Dask worker's own
            host. With ``"0.0.0.0"`` or ``"::"`` it listens on all interfaces, and is reached where the Dask worker is.
        ports : sequence of int

        Raises
        ------
        CommError
            This machine has no such interface or host.
        """
        scheme, _, host = address.partition("://")
        if scheme not in ("tcp", "tls"):
            return cls(scheme, host, host, ports)
        host = host.strip("[]")
        if not interface:
            return cls(scheme, host, _ip_of(host), ports)
        found = _ip_of_interface(interface) or _ip_of(interface)
        return cls(scheme, host if ipaddress.ip_address(found).is_unspecified else found, found, ports)


def _ip_of_interface(name: str) -> str:
    """Return the IPv4 address of a network interface; empty if there is none of this name that has one."""
    try:
        return str(get_ip_interface(name))
    except ValueError:
        return ""


def _ip_of(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise CommError(
            f"{host!r} is no network interface with an IPv4 address, no address and no host name on "
            f"{socket.gethostname()}. Its network interfaces: {known}."
        ) from error
