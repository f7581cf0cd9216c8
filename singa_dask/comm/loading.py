"""Load a module in a Dask process, beside its event loop: heartbeats go on while a large package is loaded."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

from distributed import Client

__all__ = ["load_on_scheduler", "loading_message"]


def loading_message(module: str) -> dict[str, Any]:
    """Return the message by which any Dask worker, which may not know this package, loads a module in a thread."""
    return {
        "op": "run",
        "function": pickle.dumps(asyncio.to_thread),
        "args": pickle.dumps((exec, f"import {module}")),
        "wait": True,
    }


def load_on_scheduler(client: Client, module: str) -> None:
    """Load a module in the process of the scheduler, in a thread."""
    client.run_on_scheduler(asyncio.to_thread, exec, f"import {module}")
