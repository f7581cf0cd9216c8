"""Ports for servers that tests start."""

from __future__ import annotations

import atexit
import socket

__all__ = ["free_port"]


def free_port() -> int:
    """Return a port of loopback that the system gives to nobody else while this process lives.

    It stays bound, and nobody listens on it: a server that reuses addresses, as those of Java and Tornado do, can.
    """
    held = socket.socket()
    atexit.register(held.close)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return int(held.getsockname()[1])
