"""Metrics: sums of the values that a layer measures in its batches.

The sums stay on the device until they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from singa_dask.ops.contract import Ops, Scalar

Totals = Mapping[str, tuple[float, float]]
"""(sum, count) of each metric, by name."""


def add_totals(parts: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, tuple[float, float]]:
    """Return (sum, count) of each metric over several batches or workers."""
    totals: dict[str, tuple[float, float]] = {}
    for part in parts:
        for name, (total, count) in part.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + count)
    return totals


class Metrics:
    """Sums of metrics by name.

    On a GPU the sums stay on the device, so that a step need not wait for them.

    Attributes
    ----------
    counts : dict of str to float
        The divisor of each metric: a metric is shown as its sum divided by its count.
    own_counts : set of str
        Metrics that the layer counts in its own units, such as words, instead of rows.
    """

    def __init__(self, ops: Ops) -> None:
        self.ops = ops
        # (name, scale, n) -> sum; `take` multiplies the sum by scale and divides it by n
        self._totals: dict[tuple[str, float, float], Scalar] = {}
        self.counts: dict[str, float] = {}
        self.own_counts: set[str] = set()

    def add(self, name: str, value: Scalar | None, count: float | None, scale: float, n: float) -> None:
        """Add ``scale * value / n`` to a metric, and to its count."""
        self.count({name: 1.0 if count is None else count})
        if value is None:
            return
        key = (name, scale, n)
        self._totals[key] = self.ops.accumulate(value, self._totals.get(key, 0.0))
        if count is not None:
            self.own_counts.add(name)

    def count(self, more: Mapping[str, float]) -> None:
        """Add numbers to the counts. ``more`` has the number for each metric, by name."""
        for name, n in more.items():
            self.counts[name] = self.counts.get(name, 0.0) + n

    def take(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each metric since the last call, and reset them; waits for a GPU."""
        sums = dict.fromkeys(self.counts, 0.0)
        for key, total in self._totals.items():
            name, scale, n = key
            if name in sums:
                sums[name] += scale * self._number(total) / n
            # on a GPU, reset the sum in place, because captured kernels continue to add to this memory
            self._totals[key] = self.ops.reset(total)
        taken = {name: (total, self.counts[name]) for name, total in sums.items()}
        self.counts.clear()
        return taken

    def state(self) -> dict[str, Any]:
        """Return the sums since the last `take` as plain values, for `restore`. Waits for a GPU."""
        totals = [[*key, self._number(total)] for key, total in self._totals.items()]
        return {"totals": totals, "counts": dict(self.counts)} if self.counts else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set the sums to ``state``, an earlier result of `state`."""
        self._totals = {(name, scale, n): total for name, scale, n, total in state["totals"]}
        self.counts = dict(state["counts"])

    def totals(self, wait: bool = True) -> Iterator[tuple[str, float]]:
        """Yield each name with its unscaled sum. Without ``wait``, the sum may be some steps old on a GPU."""
        for (name, *_), total in self._totals.items():
            number = self._number(total) if wait else self.ops.poll(total)
            if number is not None:
                yield name, number

    def _number(self, total: Scalar) -> float:
        return float(self.ops.to_host(total).item())
