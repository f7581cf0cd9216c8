"""Detect lost Dask workers from the gaps between their heartbeats."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import dask.config
from dask.utils import parse_timedelta
from distributed import Scheduler
from distributed.scheduler import heartbeat_interval

from singa_dask.runtime.job.limits import limit

PHI = 8.0
"""A Dask worker counts as lost when the probability of so long a silence is 10^-PHI. With exponentially distributed
gaps this is 18 times the usual gap between heartbeats, some 10 s on an idle cluster. Source: the phi accrual failure
detector of Hayashibara et al. (2004)."""
RECENT = 0.1
"""Weight of the newest gap in the running mean of gaps."""
MAX_LOOK_S = 1.0
"""If more time passes between two calls of `Heartbeats.look`, only this much counts as silence, because a blocked
scheduler reads no heartbeats."""


@dataclass
class _Beats:
    """The heartbeats of a Dask worker.

    Attributes
    ----------
    last_seen : float
        Time of the last heartbeat on the system clock. Only compared for equality, because users may change the clock.
    silence : float
        Seconds since the last heartbeat.
    usual : float
        Running mean of the gaps between heartbeats, in seconds.
    """

    last_seen: float
    silence: float
    usual: float


class Heartbeats:
    """Detects silent Dask workers, with tolerance for longer gaps if heartbeats were late recently."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._looked_at = time.monotonic()
        self._beats: dict[str, _Beats] = {}
        self._gaps: list[float] = []
        self._least_s = limit("silent")
        ttl = dask.config.get("distributed.scheduler.worker-ttl")
        self._most_s = float(parse_timedelta(ttl)) if ttl else float("inf")

    def look(self) -> None:
        """Add the time since the previous call to the silence of each Dask worker without a new heartbeat."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, MAX_LOOK_S), now
        interval, all_beats = heartbeat_interval(len(self._scheduler.workers)), {}
        for address, known in self._scheduler.workers.items():
            beats = self._beats.get(address) or _Beats(known.last_seen, 0.0, interval)
            beats.silence += passed
            if known.last_seen != beats.last_seen:
                beats.usual += RECENT * (max(beats.silence, interval) - beats.usual)
                beats.last_seen, beats.silence = known.last_seen, 0.0
            all_beats[address] = beats
        self._beats = all_beats
        self._gaps = sorted(max(each.usual, each.silence) for each in all_beats.values())

    def limit_of(self, address: str) -> float:
        """Return the seconds of silence after which a Dask worker counts as lost.

        The limit is longer if most other Dask workers are late, too.
        """
        beats, gaps = self._beats.get(address), self._gaps
        usual = beats.usual if beats else 0.0
        n_others = len(gaps) - (beats is not None)
        if n_others > 0:
            quarter = (n_others - 1) // 4
            # ignore the own gap of this Dask worker if it is in the shortest quarter
            quarter += beats is not None and max(usual, beats.silence) <= gaps[quarter]
            usual = max(usual, gaps[quarter])
        return min(max(self._least_s, PHI * math.log(10) * usual), self._most_s)

    def is_silent(self, address: str) -> bool:
        """Return whether a Dask worker of the cluster has sent no heartbeat for longer than its limit."""
        known, beats = self._scheduler.workers.get(address), self._beats.get(address)
        if known is None or beats is None or known.last_seen != beats.last_seen or beats.silence <= self._least_s:
            return False
        return beats.silence > self.limit_of(address)
