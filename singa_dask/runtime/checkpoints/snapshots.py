"""Snapshots: checkpoints in the memory of processes, from which a job restarts.

A snapshot has the parts and the manifest of a checkpoint. Several processes have each part in memory: the process of
its server, and others. The manifest lists them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from singa_dask.fs.checksums import checksum_of
from singa_dask.runtime.checkpoints.manifest import incarnation_name, incarnation_of, index_of

StorePart = Callable[[int, str, bytes, int], list[str]]
"""(step, file, content, known) -> the addresses of the processes that hold the part now.

``known`` is the step of the newest snapshot that the scheduler has; its part is not replaced."""


class Part(NamedTuple):
    """A part of a snapshot, with its step."""

    step: int
    content: bytes


class SnapshotStore:
    """Keeps parts of snapshots in the memory of one process, for any number of jobs. Thread-safe.

    At most two steps of each part are kept: the newest one, whose snapshot may be incomplete, and the step of the
    newest snapshot that the scheduler knows.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Part]] = {}
        self._lock = threading.Lock()

    def put(self, job_id: str, file: str, step: int, content: bytes, known: int) -> None:
        """Store a part under its name in the manifest, and drop its other steps except ``known``.

        A part is ignored if a newer incarnation has stored the same part. Its process was then replaced and does not
        know it yet.
        """
        with self._lock:
            parts, index = self.jobs.get(job_id, {}), index_of(file)
            if any(incarnation_of(each) > incarnation_of(file) for each in parts if index_of(each) == index):
                return
            left = {each: part for each, part in parts.items() if part.step == known or index_of(each) != index}
            self.jobs[job_id] = {**left, file: Part(step, content)}

    def get(self, job_id: str, file: str) -> bytes | None:
        """Return the content of a part; None if it is not stored."""
        with self._lock:
            part = self.jobs.get(job_id, {}).get(file)
        return None if part is None else part.content

    def forget(self, job_id: str) -> None:
        """Drop all parts of a job."""
        with self._lock:
            self.jobs.pop(job_id, None)


def store_in_memory(
    store_part: StorePart, step: int, known: int, file: str, chunks: Sequence[bytes | memoryview], incarnation: int = 0
) -> dict[str, Any]:
    """Store a file of a snapshot in memory, and return its description.

    The description has the ``file`` name, which contains the step; the length in ``bytes``; ``crc32c``; ``holders``,
    the addresses of the processes that have the file; and ``seconds``, the time that this took.
    """
    started, content, file = time.perf_counter(), b"".join(chunks), f"step-{step}/{incarnation_name(file, incarnation)}"
    facts = {"file": file, "bytes": len(content), "crc32c": checksum_of(content)}
    return {**facts, "holders": store_part(step, file, content, known), "seconds": time.perf_counter() - started}
