"""UpdateCounts: how many updates a server has applied and refused, and how stale their gradients were."""

from __future__ import annotations

from typing import Any

MAX_STALENESS = 64
"""Gradients that are staler are counted together."""
MORE = "more"


class UpdateCounts:
    """Counts the updates of all slices of one server, since it started.

    The staleness of a gradient is the number of updates that its slice had seen since the values that the worker group
    was given before it computed the gradient.

    Attributes
    ----------
    applied : int
        Number of updates: of each slice one for each step of each worker group.
    """

    def __init__(self) -> None:
        self.applied = 0
        self._counts = [0] * (MAX_STALENESS + 2)
        self._sum = 0

    def add_gradient(self, staleness: int) -> None:
        """Count a gradient."""
        self._counts[min(staleness, MAX_STALENESS + 1)] += 1
        self._sum += staleness

    def report(self) -> dict[str, Any]:
        """Return the counts for the report of the server.

        Returns
        -------
        dict
            ``applied``; ``staleness``: number of gradients by their staleness, ``"0"``, ``"1"``, ... or ``"more"``;
            ``staleness_sum``, over all gradients.
        """
        names = [*map(str, range(MAX_STALENESS + 1)), MORE]
        counts = {name: count for name, count in zip(names, self._counts, strict=True) if count}
        return {"applied": self.applied, "staleness": counts, "staleness_sum": self._sum}
