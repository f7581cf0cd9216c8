"""Decide from which snapshot or checkpoint a job restarts, after which pause, and how often."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from singa_dask.shown import plural

MAX_BACKOFF_S = 30.0
KEPT = 2
MAX_CHECKPOINTS = 8
KEYS = "parts", "states"


def snapshot_name(step: int) -> str:
    """Return the name of a snapshot in messages."""
    return f"the snapshot of step {step}"


class RestartPoints:
    """The newest snapshots and checkpoints of a job.

    Parameters
    ----------
    resume : str or None
        URL of the checkpoint that the job continues from.
    """

    def __init__(self, resume: str | None) -> None:
        self._resume = resume
        self._checkpoints: list[tuple[int, str]] = []
        self._snapshots: list[tuple[int, Mapping[str, Any]]] = []

    def add_checkpoint(self, step: int, url: str) -> None:
        """Add a complete checkpoint, which may be older than known checkpoints."""
        self._checkpoints = sorted({*self._checkpoints, (step, url)})[-MAX_CHECKPOINTS:]

    def add_snapshot(self, step: int, manifest: Mapping[str, Any], present: Collection[str]) -> None:
        """Add a complete snapshot. Snapshots of later steps, taken before a restart, are dropped.

        Only ``present`` Dask workers of the cluster are recorded as holders of the snapshot.
        """
        older = [snapshot for snapshot in self._snapshots if snapshot[0] < step]
        manifest = {**manifest, **_held(manifest, present)}
        self._snapshots = [*older, (step, manifest)][-KEPT:]

    def forget(self, worker: str) -> None:
        """Remove a lost Dask worker from the holders of snapshots, as a new one may get its address."""
        kept: list[tuple[int, Mapping[str, Any]]] = []
        for step, manifest in self._snapshots:
            others = {holder for key in KEYS for part in manifest.get(key, ()) for holder in part["holders"]} - {worker}
            kept.append((step, {**manifest, **_held(manifest, others)}))
        self._snapshots = kept

    def drop(self, unreadable: str) -> bool:
        """Drop an unreadable checkpoint or snapshot, given its URL or name; return whether it was known."""
        before = len(self._checkpoints) + len(self._snapshots)
        self._checkpoints = [point for point in self._checkpoints if point[1] != unreadable]
        self._snapshots = [point for point in self._snapshots if snapshot_name(point[0]) != unreadable]
        return len(self._checkpoints) + len(self._snapshots) < before

    def newest(self, present: Collection[str]) -> tuple[int | None, dict[str, Any], str]:
        """Return the newest snapshot or checkpoint that can still be read.

        Parameters
        ----------
        present : collection of str
            Dask workers that can be reached.

        Returns
        -------
        step : int or None
            Step of the snapshot or checkpoint; None if the job starts from its beginning.
        start : dict
            The ``manifest`` of a snapshot, the ``url`` of a checkpoint, or nothing; see `Host`.
        what : str
            Description for messages.
        """
        for step, manifest in reversed(self._snapshots):
            if self._checkpoints and self._checkpoints[-1][0] >= step:
                break
            left = _held(manifest, present)
            if all(part["holders"] for parts in left.values() for part in parts):
                return step, {"manifest": {**manifest, **left}}, snapshot_name(step)
        if self._checkpoints:
            step, url = self._checkpoints[-1]
            return step, {"url": url}, f"the checkpoint of step {step}"
        return None, {"url": self._resume} if self._resume else {}, "its beginning"

    def of_groups(self, steps: Mapping[int, int], present: Collection[str]) -> dict[str, Any]:
        """Return the newest snapshot or checkpoint from which worker groups can restart beside their servers.

        Parameters
        ----------
        steps : mapping of int to int
            The step at which each group must start. Snapshots of later steps cannot be used.
        present : collection of str
            Dask workers that can be reached.
        """
        for _, manifest in reversed(self._snapshots):
            if all(int(manifest["groups"][str(group)]["step"]) <= step for group, step in steps.items()):
                return {"manifest": {**manifest, **_held(manifest, present)}}
        url = self._checkpoints[-1][1] if self._checkpoints else self._resume
        return {"url": url} if url else {}


def _held(manifest: Mapping[str, Any], present: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the parts of a snapshot, by kind.

    The holders of each part are limited to ``present`` Dask workers.
    """

    def reached(part: Mapping[str, Any]) -> dict[str, Any]:
        return {**part, "holders": [holder for holder in part["holders"] if holder in present]}

    return {key: [reached(part) for part in manifest.get(key, ())] for key in KEYS}


class Restarts:
    """Counts the restarts of a job, and the time that they cost.

    Parameters
    ----------
    max_restarts : int
        Maximum number of restarts without progress, i.e. without a later step in between.

    Attributes
    ----------
    reasons : list of str
        Reason of each restart.
    recomputed_steps : int
        Number of steps that had to be computed again.
    lost_s : float
        Seconds from each loss until the job reached the same step again, summed over all losses.
    """

    def __init__(self, max_restarts: int) -> None:
        self.reasons: list[str] = []
        self.recomputed_steps = 0
        self.lost_s = 0.0
        self._max = max_restarts
        self._n_fruitless = 0  # number of restarts since the job last reached a new step
        self._best = -1
        self._lost_at: float | None = None
        self._lost_step = -1

    def __len__(self) -> int:
        return len(self.reasons)

    def refusal(self, step: int) -> str:
        """Return why the job may not restart again; empty if it may. ``step`` is the newest known step."""
        if not self._max:
            return "cluster.max_restarts is 0."
        if step <= self._best and self._n_fruitless >= self._max:
            return f"The job was restarted {plural(self._max, 'time')} without a later step (cluster.max_restarts)."
        return ""

    def add(self, reason: str, step: int) -> None:
        """Count a restart. ``step`` is the newest known step."""
        self.reasons.append(reason)
        self._n_fruitless = 1 if step > self._best else self._n_fruitless + 1
        self._best = max(step, self._best)

    def backoff_s(self) -> float:
        """Return the seconds to wait before the next start, which double while the job makes no progress."""
        return min(0.5 * 2.0 ** (self._n_fruitless - 1), MAX_BACKOFF_S) if self._n_fruitless > 1 else 0.0

    def lose(self, now: float, step: int) -> None:
        """Begin to count lost time, because a process was lost after ``step``.

        Counting ends when the job reaches this step again. If an earlier loss is still being counted, counting ends at
        the later of the two steps.
        """
        if self._lost_at is None:
            self._lost_at, self._lost_step = now, -1
        self._lost_step = max(step, self._lost_step)

    def reach(self, now: float, step: int) -> None:
        """Stop counting lost time if the job has reached the last step before the loss again."""
        if step >= self._lost_step:
            self.resume(now)

    def resume(self, now: float) -> None:
        """Stop counting lost time: no step has to be computed again, or the job has ended."""
        if self._lost_at is not None:
            self.lost_s += now - self._lost_at
            self._lost_at = None
