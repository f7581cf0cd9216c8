"""The newest events of a job, which are sent in pages."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

PAGE = 200
"""Number of events that are sent at once: the scheduler does nothing else meanwhile."""
KEPT_SPAN_BYTES = 1 << 26
"""Size of the profile spans that are kept of a running job. The driver usually has them within seconds."""
NUMBER = itemgetter("n")


class EventLog:
    """Keeps the newest events of a job, in order of the key ``n``, which numbers them from 0.

    Metrics and messages below warnings, which come with the steps, do not push out what comes seldom: warnings,
    errors, restarts, checkpoints. The spans of profile events are limited by their size.

    Parameters
    ----------
    limit : int
        Number of events that are kept of either kind.
    """

    def __init__(self, limit: int) -> None:
        self._frequent: deque[dict[str, Any]] = deque(maxlen=limit)
        self._rare: deque[dict[str, Any]] = deque(maxlen=limit)

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        return merge(reversed(self._frequent), reversed(self._rare), key=NUMBER, reverse=True)

    def append(self, event: dict[str, Any]) -> None:
        """Add the next event."""
        (self._frequent if _is_frequent(event) else self._rare).append(event)
        if event["event"] == "profile":
            self.drop_spans(KEPT_SPAN_BYTES)

    def drop_spans(self, kept_bytes: int = 0) -> None:
        """Drop all but the newest spans of profile events. The events stay: ``recorded`` counts what was dropped.

        A client in this process may be about to read the events that it was given: others take their places.
        """
        for i in reversed(range(len(self._rare))):
            event = self._rare[i]
            if event["event"] == "profile":
                kept_bytes -= len(event["spans"])
                if kept_bytes < 0 and event["spans"]:
                    self._rare[i] = {**event, "spans": ""}

    def after(self, n: int) -> list[dict[str, Any]]:
        """Return the first `PAGE` events with numbers higher than ``n``."""
        newer = []
        for events in (self._frequent, self._rare):
            start = bisect_right(events, n, key=NUMBER)
            newer.append(islice(events, start, start + PAGE))
        return list(islice(merge(*newer, key=NUMBER), PAGE))

    def newest(self, limit: int) -> EventLog:
        """Return a log with the newest events of either kind. The spans of profile events are dropped in both logs."""
        self.drop_spans()
        log = EventLog(limit)
        log._frequent.extend(self._frequent)
        log._rare.extend(self._rare)
        return log


def _is_frequent(event: Mapping[str, Any]) -> bool:
    kind = event["event"]
    return kind == "metrics" or (kind == "log" and event.get("level") not in ("WARNING", "ERROR", "CRITICAL"))
