"""Figures: what a layer tells of its batches, summed up where it is computed until somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Figures"]


class Figures:
    """Sums of figures by name: numbers on a CPU; on a GPU they lie there, so that a step need not wait for them.

    Attributes
    ----------
    counts : dict of str to float
        What each sum is divided by where it is shown.
    """

    def __init__(self) -> None:
        # by name, and by what their sum is multiplied with and divided by: done once, when they are taken
        self._totals: dict[tuple[str, float, float], Any] = {}
        self.counts: dict[str, float] = {}

    def add(self, ops: Any, name: str, value: Any, count: float, scale: float, n: float) -> None:
        """Add ``scale * value / n`` to a figure, and to its count."""
        key = (name, scale, n)
        self._totals[key] = ops.accumulate(value, self._totals.get(key, 0.0))
        self.count({name: count})

    def count(self, more: Mapping[str, float]) -> None:
        """Add to counts."""
        for name, n in more.items():
            self.counts[name] = self.counts.get(name, 0.0) + n

    def take(self, ops: Any) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each figure since the last call, and start anew; waits for a GPU."""
        sums = dict.fromkeys(self.counts, 0.0)
        for key, total in self._totals.items():
            name, scale, n = key
            if name in sums:
                sums[name] += scale * _number(ops, total) / n
            # in place where it lies on a GPU: kernels that are repeated go on adding there
            self._totals[key] = ops.reset(total)
        taken = {name: (total, self.counts[name]) for name, total in sums.items()}
        self.counts.clear()
        return taken

    def totals(self, ops: Any, wait: bool) -> Iterator[tuple[str, float]]:
        """Yield each name with a sum, in no unit; without ``wait`` that of some steps ago, where a GPU is behind."""
        for (name, *_), total in self._totals.items():
            found = _number(ops, total) if wait else ops.poll(total)
            if found is not None:
                yield name, found


def _number(ops: Any, total: Any) -> float:
    return float(ops.to_host(total).item())
