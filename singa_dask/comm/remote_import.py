"""Import a module of this package in a Dask process, and check that both sides have one version.

The import takes seconds, so it runs in a thread, and does not block the event loop of the Dask process.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import platform
from collections.abc import Callable
from typing import Any

from dask.utils import funcname
from distributed import Client
from distributed.client import ClosedClientError
from distributed.protocol import pickle as pickle_dask

from singa_dask.errors import ClusterError, UnloadableError
from singa_dask.version import PROTOCOL, __version__


def _code(module: str) -> str:
    """Return code that imports a module, or raises `ImportError` if the package or protocol differs."""
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
try:
    import {module}
except OSError as error:  # e.g. a missing shared library; it must not look like a lost connection
    raise ImportError(str(error))
"""


def loading_message(module: str) -> dict[str, Any]:
    """Return a Dask message that makes a Dask worker import a module, even if it lacks this package."""
    return {
        "op": "run",
        "function": pickle.dumps(asyncio.to_thread),
        "args": pickle.dumps((exec, _code(module), {})),
        "wait": True,
    }


class Guarded:
    """Wraps a function for Dask tasks, so that Dask can unpickle it even where this package is missing.

    On a Dask worker that cannot load the package, calling the wrapper raises `ImportError` with the text of
    `cannot_load`. Without the wrapper, unpickling would fail, which ends the Dask worker.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__name__ = funcname(function)
        # Dask looks at the signature to decide whether to pass keyword arguments such as block_info
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped function."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {"__name__": self.__name__, "__signature__": self.__signature__}
        facts |= {"check": _CHECK, "load": pickle.loads, "function": pickle_dask.dumps(self._function)}
        return eval, ("exec(source) or Guarded(source, facts)", {"source": _UNPICKLED, "facts": facts})


# The scheduler unpickles this class, and pickles it again for a Dask worker, so it holds only plain values.
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
    """Return the error message for a Dask server that cannot load this package."""
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


def load_on_scheduler(client: Client, module: str, timeout_s: float) -> None:
    """Import a module in the process of the scheduler, within ``timeout_s`` seconds.

    Raises
    ------
    UnloadableError
        The scheduler lacks the package, or has another version of it.
    ClusterError
        The scheduler closes, or does not answer.
    """
    scheduler: Any = client.scheduler
    if scheduler is None:
        raise ClusterError("the client has lost its connection to the scheduler.")
    try:
        client.run_on_scheduler(asyncio.to_thread, exec, _code(module), {}, callback_timeout=timeout_s)
    except ImportError as error:
        raise UnloadableError(f"{scheduler.address}: {cannot_load('scheduler', error)}") from error
    except (ClosedClientError, OSError) as error:  # the client is closing, or has lost its connection
        raise ClusterError(f"{scheduler.address}: the scheduler does not answer: {error}.") from error
