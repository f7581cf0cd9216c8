"""EventLog: keep the newest events of a job, and return them in pages."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any

PAGE = 200
"""Maximum number of events in one answer. The scheduler does nothing else while it prepares an answer."""
NUMBER = itemgetter("n")


class EventLog:
    """Keeps the newest events of a job, in the order of their numbers (key ``n``).

    Frequent and rare events are limited separately, so that frequent events do not displace rare events. Metrics, and
    log messages below the level of a warning, are frequent; all other events are rare.

    Parameters
    ----------
    limit : int
        Maximum number of frequent events, and maximum number of rare events.
    """

    def __init__(self, limit: int) -> None:
        self._frequent: deque[dict[str, Any]] = deque(maxlen=limit)
        self._rare: deque[dict[str, Any]] = deque(maxlen=limit)

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        return merge(reversed(self._frequent), reversed(self._rare), key=NUMBER, reverse=True)

    def append(self, event: dict[str, Any]) -> None:
        """Add the next event."""
        (self._frequent if _is_frequent(event) else self._rare).append(event)

    def after(self, n: int) -> list[dict[str, Any]]:
        """Return the first `PAGE` events with numbers higher than ``n``."""
        newer = []
        for events in (self._frequent, self._rare):
            start = bisect_right(events, n, key=NUMBER)
            newer.append(islice(events, start, start + PAGE))
        return list(islice(merge(*newer, key=NUMBER), PAGE))

    def newest(self, limit: int) -> EventLog:
        """Return a log with the newest events, at most ``limit`` frequent and ``limit`` rare events."""
        log = EventLog(limit)
        log._frequent.extend(self._frequent)
        log._rare.extend(self._rare)
        return log


def _is_frequent(event: Mapping[str, Any]) -> bool:
    kind = event["event"]
    return kind == "metrics" or (kind == "log" and event.get("level") not in ("WARNING", "ERROR", "CRITICAL"))
