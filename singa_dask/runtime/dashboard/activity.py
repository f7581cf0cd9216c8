"""Activity: what the page and Prometheus show of a job beside what every list of jobs has."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Mapping
from statistics import median_low
from typing import Any, NamedTuple

MAX_POINTS = 200
MAX_CURVES = 16
MAX_GROUPS = 4
RATE = "samples_per_s"


class Curve:
    """Means of a value over equal numbers of consecutive reports.

    Whenever `MAX_POINTS` are full, each two become one. A report so takes constant time, in the mean.
    """

    def __init__(self) -> None:
        self._steps = array("q")
        self._values = array("d")
        self._n_per_point = 1
        self._n, self._sum, self._step = 0, 0.0, 0

    def add(self, step: int, value: float) -> None:
        """Add a value; ``step`` is not smaller than the one before."""
        self._n, self._sum, self._step = self._n + 1, self._sum + value, step
        if self._n < self._n_per_point:
            return
        self._steps.append(step)
        self._values.append(_rounded(self._sum / self._n))
        self._n, self._sum = 0, 0.0
        if len(self._steps) == MAX_POINTS:
            self._thin()

    def _thin(self) -> None:
        pairs = zip(self._values[::2], self._values[1::2], strict=True)
        self._values = array("d", [_rounded((a + b) / 2) for a, b in pairs])
        self._steps = self._steps[1::2]
        self._n_per_point *= 2

    def points(self) -> dict[str, list[Any]]:
        """Return ``steps`` and ``values``, None for those that are not finite; the last one is of fewer reports."""
        steps, values = self._steps.tolist(), self._values.tolist()
        if self._n:
            steps.append(self._step)
            values.append(_rounded(self._sum / self._n))
        return {"steps": steps, "values": [value if math.isfinite(value) else None for value in values]}


class Curves:
    """The curves of one job: each metric of each phase and worker group, and the rate of all groups together.

    At most `MAX_CURVES`, of the first `MAX_GROUPS` groups: those that come first.
    """

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str, int], Curve] = {}
        self._rates: dict[int, float] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Add the metrics of a worker group, an event of the job."""
        phase, group, step = event["phase"], int(event["group"]), int(event["step"])
        if RATE in event:
            self._rates[group] = event[RATE]
            if group == 0:
                self._add(phase, RATE, 0, step, sum(self._rates.values()))
        if group < MAX_GROUPS:
            for name, value in event["metrics"].items():
                self._add(phase, name, group, step, value)

    def _add(self, phase: str, name: str, group: int, step: int, value: float) -> None:
        key = (name, phase, group)
        curve = self._curves.get(key)
        if curve is None:
            if len(self._curves) == MAX_CURVES:
                return
            curve = self._curves[key] = Curve()
        curve.add(step, float(value))

    def describe(self) -> list[dict[str, Any]]:
        """Return for each curve ``metric``, ``phase``, ``group``, ``steps`` and ``values``."""
        return [
            {"metric": name, "phase": phase, "group": group, **curve.points()}
            for (name, phase, group), curve in self._curves.items()
        ]


def _rounded(value: float) -> float:
    """Return a value with the digits that a picture shows: JSON with all of them takes three times as long."""
    return float(f"{value:.5g}")


WAITS = ("data", "params", "peers")
"""What a worker waits for: records, values of params, other workers of its group."""
WINDOW_S = 10.0
SLOW = 1.5
"""A worker is slow if a step takes it so many times as long to compute as the median worker."""
MIN_STEPS = 3


class Sample(NamedTuple):
    """What a worker has told with a heartbeat.

    Attributes
    ----------
    time : float
        Seconds, of the scheduler's clock.
    step : int
    step_s : float
        Duration of all steps so far.
    waits : tuple of float
        Seconds so far, in the order of `WAITS`.
    """

    time: float
    step: int
    step_s: float
    waits: tuple[float, ...]


class Activity:
    """Curves of one job, and what each of its workers has done in the last seconds.

    Attributes
    ----------
    curves : Curves
    """

    def __init__(self) -> None:
        self.curves = Curves()
        self._samples: dict[str, deque[Sample]] = {}
        self._bytes: dict[int, tuple[int, int]] = {}

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Take an event of the job; metrics are means over the workers of a group."""
        if event["event"] == "metrics":
            self.curves.add(event)
        elif event["event"] == "placed":  # units have begun again, perhaps in fewer processes
            self._samples.clear()
            self._bytes.clear()

    def add_progress(self, told: Mapping[str, Any], time: float) -> None:
        """Take what a process of the job has told with a heartbeat at a time.

        Parameters
        ----------
        told : mapping
            ``process``; ``workers``: of each its step, the duration of its steps, and of its waits, in seconds;
            ``bytes``: sent to and received from other processes.
        time : float
        """
        self._bytes[told["process"]] = tuple(told["bytes"])
        for unit, (step, step_s, *waits) in told["workers"].items():
            sample = Sample(time, step, step_s, tuple(waits))
            samples = self._samples.setdefault(unit, deque())
            if samples and samples[-1].time == time:
                continue
            if samples and (step < samples[-1].step or step_s < samples[-1].step_s):
                samples.clear()  # it has started again
            samples.append(sample)
            while len(samples) > 2 and samples[1].time <= time - WINDOW_S:
                samples.popleft()

    def totals(self) -> dict[str, dict[str, float]]:
        """Return for how many seconds each worker has waited since it started, by cause."""
        return {unit: dict(zip(WAITS, samples[-1].waits, strict=True)) for unit, samples in self._samples.items()}

    def traffic(self) -> dict[str, int]:
        """Return the bytes that processes have sent to, and received from, each other."""
        return {key: sum(each[i] for each in self._bytes.values()) for i, key in enumerate(("sent", "received"))}

    def describe(self) -> dict[str, Any]:
        """Return ``curves``, see `Curves.describe`; ``bytes``, see `traffic`; ``workers``, see `workers`."""
        return {"curves": self.curves.describe(), "bytes": self.traffic(), "workers": self.workers()}

    def workers(self) -> dict[str, dict[str, Any]]:
        """Return what each worker has done in the last seconds.

        Returns
        -------
        dict of str to dict
            By worker: ``step``; ``steps_per_s``; ``compute_ms`` of a step, None if there were too few; ``shares`` of
            the time in which it computed, and waited, by cause; ``slow``: how many times the median worker's its
            ``compute_ms`` is, or None if it is not slow.
        """
        found = {unit: _of(samples[0], samples[-1]) for unit, samples in self._samples.items()}
        known = [facts["compute_ms"] for facts in found.values() if facts["compute_ms"] is not None]
        usual = median_low(known) if known else 0.0
        for facts in found.values():
            is_slow = usual > 0 and (facts["compute_ms"] or 0.0) > SLOW * usual
            facts["slow"] = round(facts["compute_ms"] / usual, 1) if is_slow else None
        return found


def _of(first: Sample, last: Sample) -> dict[str, Any]:
    seconds, n_steps = last.time - first.time, last.step - first.step
    waits = [after - before for before, after in zip(first.waits, last.waits, strict=True)]
    compute = max(last.step_s - first.step_s - sum(waits), 0.0)
    spent = {"compute": compute, **dict(zip(WAITS, waits, strict=True))}
    # a step may have ended just after the heartbeat before the first one, and counts whole
    whole = max(seconds, sum(spent.values()), 1e-9)
    return {
        "step": last.step,
        "steps_per_s": round(n_steps / seconds, 2) if seconds else None,
        "compute_ms": round(1e3 * compute / n_steps, 3) if n_steps >= MIN_STEPS else None,
        "shares": {name: round(max(each, 0.0) / whole, 4) for name, each in spent.items()},
    }
