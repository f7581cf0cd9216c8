"""Endpoint: the host and the ports that a process of a job listens on."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from distributed.comm.addressing import get_address_host_port, unparse_host_port
from distributed.utils import get_ip_interface

from singa_dask.errors import CommError

ANY_PORT = (0,)


@dataclass(frozen=True)
class Endpoint:
    """The host and the ports that a process of a job listens on.

    Attributes
    ----------
    host : str
        Host name or address at which other processes reach the endpoint.
    bind_host : str
        IP address to listen on: an address of this machine, or the address that stands for all interfaces.
    ports : sequence of int
        Ports to try, in order; 0 stands for any free port.
    """

    scheme: str
    host: str
    bind_host: str
    ports: Sequence[int] = ANY_PORT

    @classmethod
    def of(cls, address: str, interface: str = "", ports: Sequence[int] = ANY_PORT) -> Endpoint:
        """Return the endpoint for a process of a job on a Dask worker.

        Parameters
        ----------
        address : str
            Scheme and host of the Dask worker, e.g. ``"tcp://10.0.0.7"``.
        interface : str
            Name of a network interface, IP address or host name of this machine. By default the endpoint listens on the
            Dask worker's host. With ``"0.0.0.0"`` or ``"::"`` it listens on all interfaces, and other processes reach
            it at the Dask worker's host.

        Raises
        ------
        CommError
            This machine has no such interface or host.
        """
        scheme, _, host = address.partition("://")
        if scheme == "inproc":
            return cls(scheme, host, host, ports)
        host = host.strip("[]")
        if not interface:
            return cls(scheme, host, _ip_of(host), ports)
        try:
            bind_host = str(get_ip_interface(interface))
        except ValueError:  # no interface with this name has an IPv4 address
            bind_host = _ip_of(interface)
        is_any = ipaddress.ip_address(bind_host).is_unspecified
        return cls(scheme, host if is_any else bind_host, bind_host, ports)

    def address(self, host: str, port: int) -> str:
        """Return the address of a host and a port, with this endpoint's scheme."""
        if self.scheme == "inproc":
            return "inproc://"
        # "::" would listen only on IPv6 addresses, but an empty host listens on all addresses
        return f"{self.scheme}://{unparse_host_port('' if host == '::' else host, port)}"

    def reached_at(self, contact_address: str) -> str:
        """Return the address at which other processes reach a listener of `distributed`.

        ``contact_address`` is the address that the listener itself reports. Only its port is used.
        """
        if self.scheme == "inproc":
            return contact_address
        return self.address(self.host, get_address_host_port(contact_address)[1])


def _ip_of(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        known = ", ".join(name for _, name in socket.if_nameindex())
        raise CommError(
            f"{host!r} is neither a network interface with an IPv4 address nor an address or a host name of "
            f"{socket.gethostname()}. Its network interfaces: {known}."
        ) from error
