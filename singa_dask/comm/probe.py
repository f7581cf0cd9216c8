"""Find out what answers at an address, within a time, and in words that a person understands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from distributed.comm.core import connect
from distributed.security import Security

from singa_dask.errors import CommError

__all__ = ["server_type"]


def server_type(address: str, timeout_s: float) -> str:
    """Return what kind of Dask server answers at an address: ``"Scheduler"``, ``"Worker"`` or ``"Nanny"``.

    Raises
    ------
    CommError
        None does, in ``timeout_s``; the message is the reason alone.
    """
    try:
        return asyncio.run(asyncio.wait_for(_identify(address, timeout_s), timeout_s))
    except Exception as error:  # what speaks another protocol may make distributed raise anything
        raise CommError(_reason(error, timeout_s)) from error


async def _identify(address: str, timeout_s: float) -> str:
    # a little less, so that its reason is heard before the time is over
    comm = await connect(address, timeout=0.9 * timeout_s, **Security().get_connection_args("client"))
    try:
        await comm.write({"op": "identity", "reply": True})
        return str((await comm.read())["type"])
    finally:
        comm.abort()


def _reason(error: BaseException, timeout_s: float) -> str:
    """Return what the operating system said, or that nothing was said."""
    for each in _chain(error):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return f"no answer in {timeout_s:g} s"
    return str(error) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
