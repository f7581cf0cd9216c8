"""Schemes: which listeners and connections serve an address."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from singa_dask.comm import dask_comms, sockets
from singa_dask.comm.endpoint import Endpoint
from singa_dask.comm.wire import Listener, Serve, Wire

__all__ = ["connect", "listen"]


async def listen(endpoint: Endpoint, serve: Serve, args: Mapping[str, Any]) -> Listener:
    """Listen on an endpoint; see `singa_dask.comm.sockets.listen`."""
    listener: Listener = await _module_for(endpoint.scheme).listen(endpoint, serve, args)
    return listener


async def connect(address: str, timeout_s: float, args: Mapping[str, Any]) -> Wire:
    """Connect to a listener; see `singa_dask.comm.sockets.connect`."""
    wire: Wire = await _module_for(address.partition("://")[0]).connect(address, timeout_s, args)
    return wire


def _module_for(scheme: str) -> ModuleType:
    return sockets if scheme in ("tcp", "tls") else dask_comms
