"""What people see of the units on a Dask worker: their Python stacks, and log messages."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from typing import Any

from singa_dask.redaction import redact
from singa_dask.runtime.job.hosting import Hosting
from singa_dask.runtime.units.job_log import JobFilter
from singa_dask.runtime.units.unit_host import UnitHost


def stacks_of(hostings: Iterable[Hosting]) -> dict[str, dict[str, Any]]:
    """Return the Python ``stack`` of each unit, and what it waits for, see `Views.stacks`; no unit stops for that."""
    frames = sys._current_frames()  # of all threads, also of those that are stuck
    found: dict[str, dict[str, Any]] = {}
    for hosting in hostings:
        waits = hosting.host.waits()
        for name, thread in list(hosting.host.threads.items()):
            frame = frames.get(thread.ident or 0)
            if frame is None:
                found[name] = {"error": "it has ended"}
            else:
                lines = [line for entry in traceback.format_stack(frame) for line in entry.splitlines()]
                found[name] = {"stack": lines, "wait": waits.get(name)}
    return found


LOGGER = logging.getLogger("singa_dask")


class _ToClient(logging.Handler):
    """Sends the log messages of this package in a process to the client of one job."""

    def __init__(self, host: UnitHost) -> None:
        super().__init__(logging.INFO)
        self.addFilter(JobFilter(host.job_id))
        self.host = host
        self.level_before: int = logging.NOTSET

    def attach(self) -> None:
        """Start; from now on the logger of the package passes on what is INFO or more."""
        others = [handler for handler in LOGGER.handlers if isinstance(handler, _ToClient)]
        self.level_before = others[0].level_before if others else LOGGER.level
        LOGGER.addHandler(self)
        LOGGER.setLevel(min(LOGGER.level or logging.INFO, logging.INFO))

    def detach(self) -> None:
        """Stop; when no job runs in this process any more, the logger has the level from before them."""
        LOGGER.removeHandler(self)
        if not any(isinstance(handler, _ToClient) for handler in LOGGER.handlers):
            LOGGER.setLevel(self.level_before)

    def emit(self, record: logging.LogRecord) -> None:
        event = {"event": "log", "unit": record.threadName, "level": record.levelname, "time": record.created}
        self.host.emit({**event, "message": redact(record.getMessage())})


class SiteLog:
    """The log handlers of the hosts on one Dask worker."""

    def __init__(self) -> None:
        self._handlers: dict[int, _ToClient] = {}

    def add(self, host: UnitHost) -> None:
        """Send the messages of a job from now on."""
        self._handlers[id(host)] = handler = _ToClient(host)
        handler.attach()

    def remove(self, host: UnitHost) -> None:
        """Send no more messages of a job."""
        handler = self._handlers.pop(id(host), None)
        if handler is not None:
            handler.detach()
