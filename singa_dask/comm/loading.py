"""Load a module in a Dask process, beside its event loop: heartbeats go on while a large package is loaded."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from distributed import Client

from singa_dask.errors import ClusterError
from singa_dask.version import __version__


def _code(module: str) -> str:
    """Return code that loads a module, and raises `ImportError` where the package has another version than here."""
    other = f"singa-dask {{there}} is installed, not {__version__}"
    return f"""
import {module}
from singa_dask.version import __version__ as there
if there != {__version__!r}:
    raise ImportError(f"{other}")
"""


def loading_message(module: str) -> dict[str, Any]:
    """Return the message by which any Dask worker, which may not know this package, loads a module in a thread."""
    return {
        "op": "run",
        "function": pickle.dumps(asyncio.to_thread),
        "args": pickle.dumps((exec, _code(module), {})),
        "wait": True,
    }


def load_on_scheduler(client: Client, module: str) -> None:
    """Load a module in the process of the scheduler, in a thread.

    Raises
    ------
    ClusterError
        It does not have this package, or another version of it.
    """
    try:
        client.run_on_scheduler(asyncio.to_thread, exec, _code(module), {})
    except ImportError as error:
        scheduler: Any = client.scheduler
        raise ClusterError(
            f"{scheduler.address}: the scheduler cannot load the package: {error}. "
            f"Install singa-dask {__version__} there and on all Dask workers, and start them again."
        ) from error
