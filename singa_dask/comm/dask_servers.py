"""Ask a Dask server at an address a single question, e.g. which kind it is."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import platform
import socket
from collections.abc import Callable
from typing import Any

from dask.utils import funcname
from distributed import Client
from distributed.client import ClosedClientError
from distributed.comm.addressing import get_address_host_port
from distributed.comm.core import connect
from distributed.protocol import pickle as pickle_dask
from distributed.security import Security

from singa_dask.errors import ClusterError, CommError, UnloadableError
from singa_dask.version import PROTOCOL, __version__

ATTEMPT_S = 0.2
LOAD_S = 60.0
"""How long a scheduler may take to load the package."""


def server_type(address: str, timeout_s: float) -> str:
    """Return what kind of Dask server answers at an address: ``"Scheduler"``, ``"Worker"`` or ``"Nanny"``.

    Raises
    ------
    CommError
        No server answers within ``timeout_s``. The message is only the reason.
    """
    try:
        return str(ask(address, timeout_s, "identity")["type"])
    except Exception as error:  # a server with another protocol can make distributed raise anything
        raise CommError(_refusal(address) or _reason(error, timeout_s)) from error


def ask(address: str, timeout_s: float, op: str) -> Any:
    """Call an operation of a Dask server over a connection of its own; return its answer. May raise anything."""
    return asyncio.run(asyncio.wait_for(_ask(address, timeout_s, op), timeout_s))


async def _ask(address: str, timeout_s: float, op: str) -> Any:
    # slightly less than the outer timeout, so that the reason of this one is reported
    comm = await connect(address, timeout=0.9 * timeout_s, **Security().get_connection_args("client"))
    try:
        await comm.write({"op": op, "reply": True})
        return await comm.read()
    finally:
        comm.abort()


def _refusal(address: str) -> str:
    """Return the operating system's message if it refuses to connect; "" if it does not, or cannot tell at once.

    The last attempt of `connect` may end for want of time alone.
    """
    try:
        with socket.create_connection(get_address_host_port(address, strict=True), timeout=ATTEMPT_S):
            return ""
    except (OSError, ValueError, TypeError) as error:
        return getattr(error, "strerror", None) or ""


def _reason(error: BaseException, timeout_s: float) -> str:
    """Return the operating system's message, or that there was no answer."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return f"no answer in {timeout_s:g} s"
    return str(error) or type(error).__name__


# The handshake: load a module in a Dask process of the same version, beside its event loop, as it takes seconds.


def _code(module: str) -> str:
    """Return code that loads a module, and raises `ImportError` where package or protocol are others than here."""
    here = f"singa-dask {__version__}, protocol {PROTOCOL}, Python {platform.python_version()}"
    return f"""
import platform
try:
    from singa_dask import version
except ImportError as error:
    raise ImportError(f"{{error}} (Python {{platform.python_version()}})")
there = version.__version__, getattr(version, "PROTOCOL", 0)
if there != {(__version__, PROTOCOL)!r}:
    python = platform.python_version()
    raise ImportError(f"singa-dask {{there[0]}}, protocol {{there[1]}}, Python {{python}} there; {here} here")
import {module}
"""


def loading_message(module: str) -> dict[str, Any]:
    """Return the message by which any Dask worker, which may not know this package, loads a module in a thread."""
    return {
        "op": "run",
        "function": pickle.dumps(asyncio.to_thread),
        "args": pickle.dumps((exec, _code(module), {})),
        "wait": True,
    }


class Guarded:
    """A function for Dask tasks, which Dask can unpickle without this package.

    A Dask worker that cannot load the package raises `ImportError` where it calls the function, with `cannot_load` as
    message. It would end if it had to unpickle the function itself.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = funcname(function)
        # Dask passes such keywords as block_info to functions that have them
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {"__name__": self.__name__, "__signature__": self.__signature__}
        facts |= {"check": _CHECK, "load": pickle.loads, "function": pickle_dask.dumps(self._function)}
        return eval, ("exec(source) or Guarded(source, facts)", {"source": _UNPICKLED, "facts": facts})


# Of plain values, as it is pickled again on the way from the scheduler to a Dask worker.
_UNPICKLED = """
class Guarded:
    def __init__(self, source, facts):
        self.names = {"source": source, "facts": facts}
        self.__dict__.update(facts)

    def __call__(self, *args, **kwargs):
        exec(self.check, {})
        return self.load(self.function)(*args, **kwargs)

    def __reduce__(self):
        return eval, ("exec(source) or Guarded(source, facts)", dict(self.names))
"""


def cannot_load(server: str, why: object) -> str:
    """Return the error of a Dask server that cannot load this package."""
    return (
        f"the {server} cannot load the package: {why}. Install singa-dask {__version__} there and on all Dask workers, "
        "and start them again."
    )


_CHECK = f"""
try:
    exec({_code(__name__)!r}, {{}})
except ImportError as error:
    from distributed import get_worker
    raise ImportError({cannot_load("Dask worker {}", "{}")!r}.format(get_worker().address, error)) from None
"""


def load_on_scheduler(client: Client, module: str) -> None:
    """Load a module in the process of the scheduler, in a thread.

    Raises
    ------
    UnloadableError
        It does not have this package, or another version of it.
    ClusterError
        It closes, or does not answer.
    """
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise ClusterError("the client has lost its connection to the scheduler.")
    try:
        client.run_on_scheduler(asyncio.to_thread, exec, _code(module), {}, callback_timeout=LOAD_S)
    except ImportError as error:
        raise UnloadableError(f"{scheduler.address}: {cannot_load('scheduler', error)}") from error
    except (ClosedClientError, OSError) as error:  # it closes, or has lost the connection
        raise ClusterError(f"{scheduler.address}: the scheduler does not answer: {error}.") from error
