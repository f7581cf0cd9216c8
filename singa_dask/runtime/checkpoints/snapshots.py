"""Snapshots: checkpoints in the memory of processes, for a new life of a job.

A snapshot has the same parts and the same manifest as a checkpoint, but no file. Each part is kept by the process of
its server, and by others; the manifest says by which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from singa_dask.data.fs.checksum import checksum_of
from singa_dask.runtime.checkpoints.manifest import name_of_life

Keep = Callable[[int, str, bytes], list[str]]
"""(step, file, content) -> the addresses of the processes that keep the part from now on."""

# of each part: the newest, which may belong to a snapshot that is not complete, and the one before
KEPT = 2


class _Part(NamedTuple):
    step: int
    content: bytes


class SnapshotStore:
    """Parts of snapshots that one process keeps, for any number of jobs. Thread-safe.

    Of each part at most the newest two steps stay. Steps are counted in one life: a part replaces those of its own and
    of later steps, which an older life has left.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, _Part]] = {}
        self._lock = threading.Lock()

    def put(self, job_id: str, file: str, step: int, content: bytes) -> None:
        """Keep a part.

        Parameters
        ----------
        job_id : str
        file : str
            Name of the part in the manifest, which no other part of the job has: it has the step and the life.
        step : int
        content : bytes
        """
        with self._lock:
            parts = self._jobs.setdefault(job_id, {})
            alike = [each for each in parts if _index_of(each) == _index_of(file)]
            older = sorted((each for each in alike if parts[each].step < step), key=lambda each: parts[each].step)
            for each in set(alike) - set(older[1 - KEPT :]):
                del parts[each]
            parts[file] = _Part(step, content)

    def get(self, job_id: str, file: str) -> bytes | None:
        """Return the content of a part; None if it is not here."""
        with self._lock:
            part = self._jobs.get(job_id, {}).get(file)
        return None if part is None else part.content

    def job_ids(self) -> list[str]:
        """Return the jobs that have parts here."""
        with self._lock:
            return list(self._jobs)

    def files(self, job_id: str) -> list[str]:
        """Return the names of the parts of a job."""
        with self._lock:
            return sorted(self._jobs.get(job_id, {}))

    def discard(self, job_id: str, before_step: int, after_step: int | None = None) -> None:
        """Drop the parts of older steps, and of later ones if ``after_step`` is given.

        A new life that starts from a snapshot drops all others: parts of a later one, which was never complete, must
        not replace it.
        """
        with self._lock:
            parts = self._jobs.get(job_id, {})
            for file, part in list(parts.items()):
                if part.step < before_step or (after_step is not None and part.step > after_step):
                    del parts[file]

    def forget(self, job_id: str) -> None:
        """Drop all parts of a job."""
        with self._lock:
            self._jobs.pop(job_id, None)

    def n_bytes(self, job_id: str) -> int:
        """Return the size of all parts of a job, in bytes."""
        with self._lock:
            return sum(len(part.content) for part in self._jobs.get(job_id, {}).values())


def _index_of(file: str) -> str:
    """Return what the files of one part have in common, in all steps and lives: ``part-<i>-of-<k>``."""
    return file.rpartition("/")[2].partition(".")[0]


def keep_in_memory(
    keep: Keep, step: int, file: str, chunks: Sequence[bytes | memoryview], life: int = 0
) -> dict[str, Any]:
    """Keep a file of a snapshot in memory.

    Returns
    -------
    dict
        Its ``file`` name, which has the step, length in ``bytes`` and ``crc32c``; ``holders``, the addresses of the
        processes that keep it; and ``seconds``, the time that this took.
    """
    started, content, file = time.perf_counter(), b"".join(chunks), f"step-{step}/{name_of_life(file, life)}"
    facts = {"file": file, "bytes": len(content), "crc32c": checksum_of(content)}
    return {**facts, "holders": keep(step, file, content), "seconds": time.perf_counter() - started}
