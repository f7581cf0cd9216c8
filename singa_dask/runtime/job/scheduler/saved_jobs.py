"""SavedJobs: save detached jobs at a URL, so that the next scheduler can continue them."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from distributed import Scheduler
from tornado import gen
from tornado.locks import Lock

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.conf.parts import read_options
from singa_dask.errors import DataError, TakenOverError, text_of
from singa_dask.fs.host_files import Catalog
from singa_dask.fs.ownership import Ownership
from singa_dask.runtime.job.limits import limit
from singa_dask.runtime.job.state.submission import Submission

SUFFIX = ".job.json"
ASIDE = ".aside.json"
"""Suffix of the file of a job that a scheduler could not use. To try the job again, give the file the suffix
`SUFFIX`."""
KEYS = ("run", "host", "number", "incarnation", "place")
OF_A_RUN = ("recording", "queue")
"""Keys that a `JobRun` has in addition to the keys of a `Submission`."""
TAKEN_OVER = (
    "{} A newer scheduler has taken over the detached jobs. This scheduler starts no more of them, and stops running "
    "ones with a checkpoint, from which the newer scheduler continues. This is expected while a scheduler is replaced, "
    "as in a rolling update of Kubernetes. Otherwise, set another distributed.singa-dask.state for one of the two."
)

logger = logging.getLogger(__name__)


class FoundJobs(NamedTuple):
    """The jobs that a scheduler finds at its URL.

    Attributes
    ----------
    jobs : list of dict
        The jobs that can be used, each with the `KEYS`.
    aside : dict of str to dict
        The jobs that cannot be used, by id. Each job has a ``reason``, and the text of its file as ``saved``. The text
        is empty if the file cannot be read.
    """

    jobs: list[dict[str, Any]]
    aside: dict[str, dict[str, str]]


class SavedJobs:
    """Keeps a file for each detached job that has not ended.

    Files are written in threads; writes for the same job follow one another. The newest scheduler that uses the URL
    owns the directory; see `Ownership`.

    Parameters
    ----------
    url : str
        URL of the directory. If ``url`` is empty, nothing is saved.
    facts_of : callable
        Takes the id of a job; returns the plain values to save, or None if the job has ended.

    Attributes
    ----------
    taken_over : str
        Message that a newer scheduler uses the same URL; empty otherwise.
    """

    def __init__(
        self, scheduler: Scheduler, url: str, facts_of: Callable[[str], Mapping[str, Any] | None] = lambda job_id: None
    ) -> None:
        self.url = fs.absolute(url) if url else ""
        self._scheduler = scheduler
        self._facts_of = facts_of
        self._owner = Ownership(self.url, f"scheduler {secrets.token_hex(8)}")
        self._locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()  # locks that are in use
        self._saved: dict[str, str] = {}  # job -> newest text of its file
        self.taken_over = ""

    async def load(self) -> FoundJobs:
        """Take over the directory from an earlier scheduler; return its jobs.

        A damaged file, or a file of an incompatible version, is renamed. A file that cannot be read is skipped.

        Raises
        ------
        DataError
            The directory or its owner file cannot be read, or the owner file cannot be written.
        """
        found: FoundJobs = await self._in_thread(self._read) if self.url else FoundJobs([], {})
        return found

    async def save(self, job_id: str) -> str:
        """Write the file of a job, or delete it if the job has ended.

        Return the error as text, empty after success.
        """
        if not self.url:
            return ""
        writing = gen.convert_yielded(self._save(job_id))  # started separately, so that it continues after the timeout
        try:
            await gen.with_timeout(timedelta(seconds=limit("answer")), writing, quiet_exceptions=Exception)
        except TakenOverError:
            return self.taken_over
        except Exception as error:
            file = fs.join(self.url, f"{job_id}{SUFFIX}")
            why = f"{file}: the job cannot be saved for a restarted scheduler: {text_of(error)}"
            logger.warning("%s", why)
            return why
        return ""

    async def _save(self, job_id: str) -> None:
        lock = self._locks.setdefault(job_id, Lock())
        async with lock:
            facts = self._facts_of(job_id)
            text = "" if facts is None else json.dumps(facts)
            if text and text == self._saved.get(job_id):
                return  # the call of another process of this incarnation has already written the file
            try:
                await self._in_thread(self._write, f"{job_id}{SUFFIX}", text)
            except TakenOverError as error:
                if not self.taken_over:
                    self.taken_over = TAKEN_OVER.format(error)
                    logger.warning("%s", self.taken_over)
                raise
            self._saved[job_id] = text
            if not text:
                del self._saved[job_id]

    async def _in_thread(self, function: Callable[..., Any], *given: Any) -> Any:
        return await self._scheduler.loop.run_in_executor(None, function, *given)

    def _read(self) -> FoundJobs:
        self._owner.take()
        found = FoundJobs([], {})
        jobs = set()
        # read files with `SUFFIX` first: if a job has two files, the renamed file is ignored
        for name in sorted(fs.ls(self.url), key=lambda name: not name.endswith(SUFFIX)):
            file, job_id = fs.join(self.url, name), name.removesuffix(ASIDE).removesuffix(SUFFIX)
            if not name.endswith((SUFFIX, ASIDE)) or job_id in jobs:
                continue
            jobs.add(job_id)
            try:
                data = fs.read_bytes(file)
            except DataError as error:
                logger.warning("%s The job is skipped.", error)
                found.aside[job_id] = {"reason": f"skipped: {error}", "saved": ""}
                continue
            text, why = data.decode(errors="replace"), "another version of singa-dask could not use it."
            try:
                saved = _parse(job_id, text)
                if name.endswith(SUFFIX):
                    found.jobs.append(saved)
                    continue
            except Exception as error:  # other versions may write anything
                why = f"it is damaged or of another version of singa-dask: {text_of(error).removesuffix('.')}."
            found.aside[job_id] = {"reason": _put_aside(file, data, why), "saved": text}
        return found

    def _write(self, name: str, text: str) -> None:
        file = fs.join(self.url, name)
        if text:
            fs.write_atomic(file, text, check=self._owner.check)
        else:
            self._owner.check()
            fs.remove_tree(file)


def _parse(job_id: str, text: str) -> dict[str, Any]:
    """Return the `KEYS` of a saved job; raise an error if an incompatible version has saved it."""
    facts = json.loads(text)
    saved: dict[str, Any] = {key: facts[key] for key in KEYS}
    run = saved["run"]
    if run["job_id"] != job_id:
        raise ValueError(f"the file is of job {run['job_id']}")
    submission = Submission(**{key: value for key, value in run.items() if key not in OF_A_RUN})
    _ = [Catalog.of(each) for each in submission.datasets]
    read_options(JobConf, json.loads(run["job"]))
    run["recording"]["steps"] = {int(group): int(step) for group, step in run["recording"]["steps"].items()}
    return {**saved, **{key: int(saved[key]) for key in ("number", "incarnation", "place")}}


def _put_aside(file: str, data: bytes, why: str) -> str:
    """Rename the file of a job that cannot be used, unless it was renamed before.

    Return the reason for users.
    """
    other = f"{file.removesuffix(ASIDE).removesuffix(SUFFIX)}{ASIDE}"
    if file != other:
        logger.warning("%s: the job does not continue, because %s", file, why)
        try:
            fs.write_atomic(other, data)
            fs.remove_tree(file)
        except OSError as failed:  # the next scheduler will read the file again
            logger.warning("%s: it cannot be renamed to %s: %s", file, other, text_of(failed))
    return f"put aside: {why} Its record is in {other}."
