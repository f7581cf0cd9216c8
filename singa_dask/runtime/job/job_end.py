"""How a job has ended, for those who follow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """How a job has ended, as its last event says.

    Attributes
    ----------
    reports : mapping of str to mapping
        Of each unit; empty if nothing more is heard of the job.
    failure : mapping or None
        The first one: ``reason``, ``exit_code``, ``error``, ``expected``.
    signal, by : str
        Name of the signal that stopped the job, and who sent it, if not its client.
    processes : sequence of sequence of str
        The units of each process.
    stuck : sequence of str
        Units that do not end.
    restarts, recomputed_steps, lost_s
        See `Restarts`.
    latest : mapping of str to mapping
        The last metrics of each phase.
    samples_per_s : float
        The last speed that was reported, summed over the worker groups.
    is_heard : bool
        Whether the scheduler has told it.
    """

    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failure: Mapping[str, Any] | None = None
    signal: str = ""
    by: str = ""
    processes: Sequence[Sequence[str]] = ()
    stuck: Sequence[str] = ()
    restarts: int = 0
    recomputed_steps: int = 0
    lost_s: float = 0.0
    latest: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    last_step: int = -1
    samples_per_s: float = 0.0
    seconds: float = 0.0
    is_heard: bool = True

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> JobEnd:
        """Return what an event ``over`` says."""
        return cls(**{each.name: event[each.name] for each in fields(cls) if each.name in event})

    @property
    def reason(self) -> str:
        """Why the job has failed; empty if it has not."""
        return str(self.failure["reason"]) if self.failure else ""
