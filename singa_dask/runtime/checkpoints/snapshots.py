"""Snapshots: checkpoints in the memory of processes, from which a job restarts.

A snapshot has the same parts and manifest as a checkpoint. Each part is in the memory of two processes: the process of
the server that wrote the part, and another process. The manifest lists these processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from singa_dask.fs.checksums import checksum_of
from singa_dask.runtime.checkpoints.manifest import incarnation_name, incarnation_of, index_of

StorePart = Callable[[int, str, bytes, int], list[str]]
"""A function of (step, file, content, known) that stores a part, and returns the addresses of its holders.

``known`` is the step of the newest snapshot that the scheduler has. The parts of this snapshot must not be replaced."""


class Part(NamedTuple):
    """A part of a snapshot, and the step of the snapshot."""

    step: int
    content: bytes


class SnapshotStore:
    """Keeps parts of snapshots in the memory of one process, for any number of jobs. Thread-safe.

    At most two versions of each part are kept: from the newest step, whose snapshot may be incomplete, and from the
    newest snapshot that the scheduler has.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Part]] = {}
        self._lock = threading.Lock()

    def put(self, job_id: str, file: str, step: int, content: bytes, known: int) -> None:
        """Store a part under its name in the manifest; drop the same part of all other steps except ``known``.

        If a newer incarnation has stored the same part, the call has no effect: the calling process was replaced, and
        has not noticed it yet.
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
    """Store a file of a snapshot in memory, and return its description for the manifest.

    Returns
    -------
    dict
        ``file``: the name, which contains the step. ``bytes``: the length. ``crc32c``: the checksum. ``holders``: the
        addresses of the processes that hold the file. ``seconds``: the time that storing took.
    """
    started, content, file = time.perf_counter(), b"".join(chunks), f"step-{step}/{incarnation_name(file, incarnation)}"
    facts = {"file": file, "bytes": len(content), "crc32c": checksum_of(content)}
    return {**facts, "holders": store_part(step, file, content, known), "seconds": time.perf_counter() - started}
