"""Curves: the metrics of a job over its steps, thinned for display."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any

MAX_POINTS = 200
MAX_CURVES = 16
MAX_GROUPS = 4
RATE = "samples_per_s"


class Curve:
    """A curve of less than `MAX_POINTS` points, which are means over equally many consecutive values.

    When there are `MAX_POINTS` points, each pair of neighbours is merged into one point. Thus adding a value takes
    constant time on average.
    """

    def __init__(self) -> None:
        self._steps = array("q")
        self._values = array("d")
        self._n_per_point = 1
        self._n, self._sum, self._step = 0, 0.0, 0

    def add(self, step: int, value: float) -> None:
        """Add a value; ``step`` must not decrease."""
        self._n, self._sum, self._step = self._n + 1, self._sum + value, step
        if self._n < self._n_per_point:
            return
        self._steps.append(step)
        self._values.append(rounded(self._sum / self._n))
        self._n, self._sum = 0, 0.0
        if len(self._steps) == MAX_POINTS:
            self._thin()

    def _thin(self) -> None:
        pairs = zip(self._values[::2], self._values[1::2], strict=True)
        self._values = array("d", [rounded((a + b) / 2) for a, b in pairs])
        self._steps = self._steps[1::2]
        self._n_per_point *= 2

    def points(self) -> dict[str, list[Any]]:
        """Return ``steps`` and ``values`` of the points. Values that are not finite are None.

        The last point may be the mean of fewer values than all other points.
        """
        steps, values = self._steps.tolist(), self._values.tolist()
        if self._n:
            steps.append(self._step)
            values.append(rounded(self._sum / self._n))
        return {"steps": steps, "values": [value if math.isfinite(value) else None for value in values]}


class Curves:
    """The curves of one job: each metric by phase and worker group, and the total speed of all groups.

    Only the first `MAX_GROUPS` groups have curves, and at most `MAX_CURVES` curves are kept.
    """

    def __init__(self) -> None:
        self._curves: dict[tuple[str, str, int], Curve] = {}
        self._rates: dict[int, float] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Add the metrics event of a worker group."""
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
        """Return ``metric``, ``phase``, ``group``, ``steps`` and ``values`` of each curve."""
        return [
            {"metric": name, "phase": phase, "group": group, **curve.points()}
            for (name, phase, group), curve in self._curves.items()
        ]


def rounded(value: float) -> float:
    """Round a value to the digits that a picture can show.

    Writing JSON with all digits takes three times as long.
    """
    return float(f"{value:.5g}")
