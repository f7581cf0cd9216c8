"""Activity: the speed and the waits of the workers of a job."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median_low
from typing import Any, NamedTuple

from singa_dask.runtime.dashboard.curves import Curves, rounded

WAITS = ("data", "params", "peers")
"""Causes of a worker's waits: records, values of params, or other workers of its group."""
WINDOW_S = 10.0
SLOW = 1.5
"""A worker counts as slow if its computing time in a step is this many times the median of all workers."""
MIN_STEPS = 3


class Sample(NamedTuple):
    """Progress of one worker, from a heartbeat of its process.

    ``time`` is in seconds on the scheduler's clock. ``step_s`` is the total duration of all steps so far, and ``waits``
    the total waits so far in seconds, in the order of `WAITS`.
    """

    time: float
    step: int
    step_s: float
    waits: tuple[float, ...]


class Activity:
    """Collects curves of one job, its newest learning rate (``lr``), and recent progress of each worker."""

    def __init__(self) -> None:
        self.curves = Curves()
        self.lr: float | None = None
        self._first: dict[str, Sample] = {}
        self._samples: dict[str, deque[Sample]] = {}
        self._bytes: dict[int, tuple[int, int]] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event of the job. Metrics in it are means over the workers of a group."""
        if event["event"] == "metrics":
            self.curves.add(event)
            self.lr = event.get("lr", self.lr)
        elif event["event"] == "placed":  # the units have been restarted, perhaps in fewer processes
            self._first.clear()
            self._samples.clear()
            self._bytes.clear()

    def add_progress(self, progress: Mapping[str, Any], time: float) -> None:
        """Add the progress that a process of the job has sent with a heartbeat.

        Parameters
        ----------
        progress : mapping
            ``process``: number of the process. ``workers``: for each worker, its step, the total duration of its steps
            and its total waits, in seconds. ``bytes``: numbers of bytes sent to and received from other processes.
        time : float
            Time of the heartbeat in seconds.
        """
        self._bytes[progress["process"]] = tuple(progress["bytes"])
        for unit, (step, step_s, *waits) in progress["workers"].items():
            sample = Sample(time, step, step_s, tuple(waits))
            samples = self._samples.setdefault(unit, deque())
            if samples and samples[-1].time == time:
                continue
            if samples and (step < samples[-1].step or step_s < samples[-1].step_s):
                samples.clear()  # the worker has been restarted
            if not samples:
                self._first[unit] = sample
            samples.append(sample)
            while len(samples) > 2 and samples[1].time <= time - WINDOW_S:
                samples.popleft()

    def totals(self) -> dict[str, dict[str, float]]:
        """Return, for each worker, the seconds that the worker has waited since its start, by cause."""
        return {unit: dict(zip(WAITS, samples[-1].waits, strict=True)) for unit, samples in self._samples.items()}

    def traffic(self) -> dict[str, int]:
        """Return the numbers of bytes that the processes of the job have sent to and received from each other."""
        return {key: sum(each[i] for each in self._bytes.values()) for i, key in enumerate(("sent", "received"))}

    def left_s(self, n_steps: int) -> float | None:
        """Return the seconds until the slowest worker has done ``n_steps``; None if unknown."""
        pairs = [(self._first[unit], samples[-1]) for unit, samples in self._samples.items()]
        if not pairs or any(last.step <= first.step for first, last in pairs):
            return None
        left = [
            (last.time - first.time) / (last.step - first.step) * max(n_steps - 1 - last.step, 0)
            for first, last in pairs
        ]
        return round(max(left), 1)

    def describe(self) -> dict[str, Any]:
        """Return ``curves``, ``bytes``, ``lr`` and ``workers`` for the dashboard."""
        return {
            "curves": self.curves.describe(),
            "bytes": self.traffic(),
            "lr": self.lr if self.lr is None else rounded(self.lr),
            "workers": self.workers(),
        }

    def workers(self) -> dict[str, dict[str, Any]]:
        """Return the recent activity of each worker.

        Returns
        -------
        dict of str to dict
            ``step``; ``steps_per_s``; ``compute_ms``: computing time in a step, or None after too few steps;
            ``shares``: share of the time spent computing, and waiting for each cause; ``slow``: for a slow worker, its
            ``compute_ms`` divided by the median of all workers, else None.
        """
        rates = {unit: _of(samples[0], samples[-1]) for unit, samples in self._samples.items()}
        known = [facts["compute_ms"] for facts in rates.values() if facts["compute_ms"] is not None]
        usual = median_low(known) if known else 0.0
        for facts in rates.values():
            is_slow = usual > 0 and (facts["compute_ms"] or 0.0) > SLOW * usual
            facts["slow"] = round(facts["compute_ms"] / usual, 1) if is_slow else None
        return rates


def _of(first: Sample, last: Sample) -> dict[str, Any]:
    seconds, n_steps = last.time - first.time, last.step - first.step
    waits = [after - before for before, after in zip(first.waits, last.waits, strict=True)]
    compute = max(last.step_s - first.step_s - sum(waits), 0.0)
    spent = {"compute": compute, **dict(zip(WAITS, waits, strict=True))}
    # the sum may exceed the time between heartbeats: a step that began before the first heartbeat counts in full
    whole = max(seconds, sum(spent.values()), 1e-9)
    return {
        "step": last.step,
        "steps_per_s": round(n_steps / seconds, 2) if seconds else None,
        "compute_ms": round(1e3 * compute / n_steps, 3) if n_steps >= MIN_STEPS else None,
        "shares": {name: round(max(each, 0.0) / whole, 4) for name, each in spent.items()},
    }
