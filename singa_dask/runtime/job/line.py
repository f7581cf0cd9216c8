"""Line: the order in which jobs that wait for a cluster start. It does no I/O and never waits."""

from __future__ import annotations

__all__ = ["Line"]


class Line:
    """Jobs in line: those of higher priority first, and of the same priority first come, first served.

    Only the first one may start. A smaller job does not pass a larger one, which might wait for ever.
    """

    def __init__(self) -> None:
        self._keys: dict[str, tuple[int, int]] = {}
        self._n_joined = 0

    def join(self, job_id: str, priority: int = 0) -> None:
        """Put a job in line, unless it is there already."""
        if job_id not in self._keys:
            self._keys[job_id] = (-priority, self._n_joined)
            self._n_joined += 1

    def leave(self, job_id: str) -> None:
        """Take a job out of the line, if it is there."""
        self._keys.pop(job_id, None)

    def ahead_of(self, job_id: str, priority: int = 0) -> list[str]:
        """Return the jobs that start before a job, in order; one that is not in line comes last of its ``priority``."""
        key = self._keys.get(job_id, (-priority, self._n_joined))
        return sorted((each for each, other in self._keys.items() if other < key), key=self._keys.__getitem__)
