"""SiteViews: what people ask of the units on a Dask worker: their Python stacks, and a checkpoint."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from singa_dask.runtime.job.hosting import Hosting
from singa_dask.runtime.job.names import Op

__all__ = ["SiteViews"]


class SiteViews:
    """Answers questions about the units on a Dask worker, on its event loop: no unit stops for them.

    Parameters
    ----------
    hostings : mapping of (str, int) to Hosting
        Of `Site`: by job and process.

    Attributes
    ----------
    handlers : dict of str to callable
        By operation, for the Dask worker.
    """

    def __init__(self, hostings: Mapping[tuple[str, int], Hosting]) -> None:
        self._hostings = hostings
        self.handlers: dict[str, Callable[..., Any]] = {
            Op.CHECKPOINT: self.request_checkpoint,
            Op.STACKS: self.stacks,
        }

    def request_checkpoint(self, job_id: str) -> None:
        """Ask the first worker of a job, if it is here, for a checkpoint."""
        for hosting in self._of(job_id):
            hosting.host.request_checkpoint()

    def stacks(self, job_id: str) -> dict[str, dict[str, Any]]:
        """Return the Python ``stack`` of each unit of a job, and what it waits for; see `Views.stacks`."""
        frames = sys._current_frames()  # of all threads, also of those that are stuck
        found: dict[str, dict[str, Any]] = {}
        for hosting in self._of(job_id):
            waits = hosting.host.waits()
            for name, thread in list(hosting.host.threads.items()):
                frame = frames.get(thread.ident or 0)
                if frame is None:
                    found[name] = {"error": "it has ended"}
                else:
                    lines = [line for entry in traceback.format_stack(frame) for line in entry.splitlines()]
                    found[name] = {"stack": lines, "wait": waits.get(name)}
        return found

    def _of(self, job_id: str) -> list[Hosting]:
        return [each for each in self._hostings.values() if each.job_id == job_id]
