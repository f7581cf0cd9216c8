"""Keep the log messages and warnings of Dask off the stderr of a client."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client
from distributed.versions import VersionMismatchWarning, scheduler_relevant_packages

__all__ = ["quiet_dask", "silent_logs", "start_client"]


@contextmanager
def silent_logs() -> Iterator[None]:
    """Silence Dask's log messages; also in several threads at once, that end in any order."""

    def is_critical(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.CRITICAL

    handlers = [each for each in logging.getLogger("distributed").handlers if isinstance(each, logging.StreamHandler)]
    for handler in handlers:
        handler.addFilter(is_critical)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_critical)


@contextmanager
def quiet_dask() -> Iterator[None]:
    """Silence Dask's log messages and version tables; errors are raised anyway."""
    with silent_logs(), warnings.catch_warnings():
        # the warning is repeated after each reconnection
        warnings.simplefilter("ignore", VersionMismatchWarning)
        yield


def start_client(address: str, timeout: float, say: Callable[[str], None]) -> Client:
    """Connect to a scheduler; report package versions that differ from those here."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", VersionMismatchWarning)
        client = Client(address, timeout=timeout, set_as_default=False)
    for warning in caught:
        if not issubclass(warning.category, VersionMismatchWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if any(issubclass(warning.category, VersionMismatchWarning) for warning in caught):
        differences = version_differences(client.get_versions())
        say(f"{address}: versions there differ from those here: {differences}. Install the same ones on both sides.")
    return client


def version_differences(versions: Any) -> str:
    """Describe the differences in the answer of `Client.get_versions`, e.g. ``numpy 1.26.4 there, 2.4.6 here``."""
    here = versions["client"]["packages"]
    scheduler = versions["scheduler"]["packages"]
    there = [each["packages"] for each in versions["workers"].values() if each]
    there.append({name: scheduler.get(name) for name in scheduler_relevant_packages})
    found = []
    for name in sorted(here):
        others = {packages[name] for packages in there if name in packages} - {here[name]}
        if others:
            found.append(
                f"{name} {', '.join(str(other or 'missing') for other in sorted(others, key=str))} there, "
                f"{here[name] or 'missing'} here"
            )
    return "; ".join(found) or "unknown packages"
