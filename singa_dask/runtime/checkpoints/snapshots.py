"""Snapshots: checkpoints in the memory of processes, for a new life of a job.

A snapshot has the same parts and the same manifest as a checkpoint, but no file. Each part is kept by the process
of its server, and by others; the manifest says by which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from singa_dask.fs.checksums import checksum_of
from singa_dask.runtime.checkpoints.manifest import index_of, life_of, name_of_life

Keep = Callable[[int, str, bytes, int], list[str]]
"""(step, file, content, known) -> the addresses of the processes that keep the part from now on.

``known`` is the step of the newest snapshot that the scheduler has, whose part stays."""


class Part(NamedTuple):
    """A part of the snapshot of a step."""

    step: int
    content: bytes


class SnapshotStore:
    """Parts of snapshots that one process keeps, for any number of jobs. Thread-safe.

    Of each part at most two steps stay: the newest, which may belong to a snapshot that is not complete, and that of
    the newest snapshot that the scheduler has, from which the job starts again.

    Attributes
    ----------
    jobs : dict of str to dict
        By job: the parts by name.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Part]] = {}
        self._lock = threading.Lock()

    def put(self, job_id: str, file: str, step: int, content: bytes, known: int) -> None:
        """Keep a part; drop those of other steps but that of the step ``known``.

        A part is not kept if there is one of a newer life: its process was replaced, and does not know it yet.

        Parameters
        ----------
        job_id : str
        file : str
            Name of the part in the manifest, which no other part of the job has: it has the step and the life.
        step : int
        content : bytes
        known : int
        """
        with self._lock:
            parts, index = self.jobs.get(job_id, {}), index_of(file)
            if any(life_of(each) > life_of(file) for each in parts if index_of(each) == index):
                return
            left = {each: part for each, part in parts.items() if part.step == known or index_of(each) != index}
            self.jobs[job_id] = {**left, file: Part(step, content)}

    def get(self, job_id: str, file: str) -> bytes | None:
        """Return the content of a part; None if it is not here."""
        with self._lock:
            part = self.jobs.get(job_id, {}).get(file)
        return None if part is None else part.content

    def forget(self, job_id: str) -> None:
        """Drop all parts of a job."""
        with self._lock:
            self.jobs.pop(job_id, None)


def keep_in_memory(
    keep: Keep, step: int, known: int, file: str, chunks: Sequence[bytes | memoryview], life: int = 0
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
    return {**facts, "holders": keep(step, file, content, known), "seconds": time.perf_counter() - started}
