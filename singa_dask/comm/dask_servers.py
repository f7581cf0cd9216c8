"""Ask the Dask server at an address whether it is a scheduler or a Dask worker."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import connect
from distributed.security import Security

from singa_dask.errors import CommError

ATTEMPT_S = 0.2


def server_type(address: str, timeout_s: float) -> str:
    """Return the kind of the Dask server at an address: ``"Scheduler"``, ``"Worker"`` or ``"Nanny"``.

    Raises
    ------
    CommError
        No server answers within ``timeout_s``. The message has only the reason, not the address.
    """
    try:
        return str(asyncio.run(asyncio.wait_for(_identity(address, timeout_s), timeout_s))["type"])
    except Exception as error:  # if the server speaks another protocol, distributed may raise any exception
        raise CommError(_refusal(address) or _reason(error, timeout_s)) from error


async def _identity(address: str, timeout_s: float) -> Any:
    # slightly shorter than the outer timeout, so that distributed reports its reason before the outer timeout ends
    comm = await connect(address, timeout=0.9 * timeout_s, **Security().get_connection_args("client"))
    try:
        await comm.write({"op": "identity", "reply": True})
        return await comm.read()
    finally:
        comm.abort()


def _refusal(address: str) -> str:
    """Return the operating system's message if it refuses a connection immediately; else an empty string."""
    try:
        with socket.create_connection(get_address_host_port(address, strict=True), timeout=ATTEMPT_S):
            return ""
    except (OSError, ValueError, TypeError) as error:
        return getattr(error, "strerror", None) or ""


def _reason(error: BaseException, timeout_s: float) -> str:
    """Return the operating system's message in an error or its causes; without one, describe the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return f"no answer in {timeout_s:g} s"
    return str(error) or type(error).__name__
