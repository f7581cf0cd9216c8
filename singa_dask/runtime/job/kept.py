"""What a scheduler keeps of detached jobs at a URL, for one that is started after it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from distributed import Scheduler
from tornado import gen
from tornado.locks import Lock

from singa_dask import fs
from singa_dask.errors import text_of
from singa_dask.runtime.job.limits import limit

SUFFIX = ".job.json"
KEYS = ("run", "host", "number", "life", "place")

logger = logging.getLogger(__name__)


class KeptJobs:
    """Keeps a file for each detached job that has not ended. Threads write them, the event loop does not wait.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    url : str
        Directory; empty: nothing is kept.
    facts_of : callable
        (job id) returns what to keep of a job, as plain values; None if it has ended.
    """

    def __init__(
        self, scheduler: Scheduler, url: str, facts_of: Callable[[str], Mapping[str, Any] | None] = lambda job_id: None
    ) -> None:
        self.url = fs.absolute(url) if url else ""
        self._scheduler = scheduler
        self._facts_of = facts_of
        self._locks: dict[str, Lock] = {}

    async def load(self) -> list[dict[str, Any]]:
        """Return what was kept.

        Raises
        ------
        DataError
            The directory cannot be read. A file that is damaged is passed over, with a warning.
        """
        kept: list[dict[str, Any]] = await self._in_thread(self._read) if self.url else []
        return kept

    async def save(self, job_id: str) -> str:
        """Write what there is to keep of a job by now, or delete it; return why that fails, or nothing."""
        if not self.url:
            return ""
        async with self._locks.setdefault(job_id, Lock()):
            facts = self._facts_of(job_id)
            file = fs.join(self.url, f"{job_id}{SUFFIX}")
            text = "" if facts is None else json.dumps(facts)
            try:
                written = gen.convert_yielded(self._in_thread(_write, file, text))
                await gen.with_timeout(timedelta(seconds=limit("answer")), written)
            except Exception as error:
                why = f"{file}: the job cannot be kept for a scheduler that is started again: {text_of(error)}"
                logger.warning("%s", why)
                return why
            if facts is None:
                self._locks.pop(job_id, None)
        return ""

    async def _in_thread(self, function: Callable[..., Any], *given: Any) -> Any:
        return await self._scheduler.loop.run_in_executor(None, function, *given)

    def _read(self) -> list[dict[str, Any]]:
        fs.makedirs(self.url)
        kept = []
        for name in fs.ls(self.url):
            if name.endswith(SUFFIX):
                file = fs.join(self.url, name)
                try:
                    facts = json.loads(fs.read_bytes(file))
                    # the keys without which a job cannot be taken up
                    kept.append({key: facts[key] for key in KEYS})
                except (ValueError, KeyError, TypeError) as error:
                    logger.warning("%s: passed over, as it is damaged: %r", file, error)
        return kept


def _write(file: str, text: str) -> None:
    if text:
        fs.write_atomic(file, text.encode())
    else:
        fs.remove_tree(file)
