"""Snapshots: checkpoints in the memory of processes, from which a job restarts.

A snapshot has the parts and the manifest of a checkpoint. Each part is held by the process of its server and by others,
which the manifest lists.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from singa_dask.fs.checksums import checksum_of
from singa_dask.runtime.checkpoints.manifest import incarnation_name, incarnation_of, index_of

Keep = Callable[[int, str, bytes, int], list[str]]
"""(step, file, content, known) -> the addresses of the processes that hold the part now.

``known`` is the step of the newest snapshot that the scheduler has; its part is not replaced."""


class Part(NamedTuple):
    """A part of the snapshot of a step."""

    step: int
    content: bytes


class SnapshotStore:
    """Parts of snapshots that one process holds, by job and name, for any number of jobs. Thread-safe.

    At most two steps of each part stay: the newest, whose snapshot may be incomplete, and that of the newest snapshot
    that the scheduler has.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Part]] = {}
        self._lock = threading.Lock()

    def put(self, job_id: str, file: str, step: int, content: bytes, known: int) -> None:
        """Keep a part, named as in the manifest; drop parts of other steps except ``known``.

        A part is ignored if one of a newer incarnation is here: its process was replaced and does not know it yet.
        """
        with self._lock:
            parts, index = self.jobs.get(job_id, {}), index_of(file)
            if any(incarnation_of(each) > incarnation_of(file) for each in parts if index_of(each) == index):
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
    keep: Keep, step: int, known: int, file: str, chunks: Sequence[bytes | memoryview], incarnation: int = 0
) -> dict[str, Any]:
    """Keep a file of a snapshot in memory; return its description.

    That is its ``file`` name, which contains the step; its length in ``bytes``; ``crc32c``; ``holders``, the addresses
    of the processes that hold it; and the ``seconds`` that this took.
    """
    started, content, file = time.perf_counter(), b"".join(chunks), f"step-{step}/{incarnation_name(file, incarnation)}"
    facts = {"file": file, "bytes": len(content), "crc32c": checksum_of(content)}
    return {**facts, "holders": keep(step, file, content, known), "seconds": time.perf_counter() - started}
