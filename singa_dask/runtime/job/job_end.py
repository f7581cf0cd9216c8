"""JobEnd: how a job ended, with its `Failure`, state, reason and exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from singa_dask.errors import LostUnitError
from singa_dask.runtime.job.names import SIGNAL_CODES
from singa_dask.shown import plural


@dataclass(frozen=True)
class Failure:
    """The first failure of a job.

    Attributes
    ----------
    error : str
        Traceback; empty if the reason alone is enough.
    unit, cause : str
        The unit that failed, and its error without names of units; empty if no unit failed.
    is_hosting : bool
        Whether a process could not be hosted.
    """

    reason: str
    exit_code: int = 1
    error: str = ""
    unit: str = ""
    cause: str = ""
    is_hosting: bool = False

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Failure:
        """Return the failure in the report of a unit."""
        error = "" if report.get("expected") else report.get("error", "")
        return cls(report["reason"], report.get("exit_code", 1), error, report.get("unit", ""), report.get("cause", ""))


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """The end of a job, as its last event describes it.

    Attributes
    ----------
    reports : mapping of str to mapping
        Reports of units; empty if the scheduler is gone or does not know the job any more.
    failure : Failure or None
        The first failure.
    signal, by : str
        Name of the signal that stopped the job, and who sent it; ``by`` is empty if the client sent it.
    processes : sequence of sequence of str
        The units of each process.
    stuck : sequence of str
        Units that do not end.
    restarts, recomputed_steps, lost_s
        See `Restarts`.
    latest : mapping of str to mapping
        The last metrics of each phase.
    samples_per_s : float
        The speed that was reported last, summed over the worker groups.
    is_heard : bool
        Whether the scheduler has reported the end.
    """

    reports: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    failure: Failure | None = None
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
        """Return the end in an event ``over``."""
        known = {each.name: event[each.name] for each in fields(cls) if each.name in event}
        return cls(**{**known, "failure": Failure(**event["failure"]) if event.get("failure") else None})

    @property
    def reason(self) -> str:
        """The reason of the failure; empty if there is none."""
        return self.failure.reason if self.failure else ""


def exit_code_of(state: str, over: JobEnd) -> int:
    """Return the exit code of a job that has ended in this state."""
    if state == "stopped":
        return SIGNAL_CODES.get(over.signal, 1)
    return over.failure.exit_code if over.failure else 0


def outcome(over: JobEnd) -> tuple[str, int, str]:
    """Return how a job ended: state, number of steps, and the reason."""
    reports, failure = over.reports, over.failure
    workers = [report for report in reports.values() if "step_ms" in report]
    step = max((int(report.get("step", -1)) for report in reports.values()), default=-1)
    if failure:
        last = f" Last step: {step}." if failure.exit_code == LostUnitError.exit_code else ""
        return "failed", max(step, 0), _reason_of(failure, reports) + last
    waited = bool(over.signal) and any(report["state"] != "done" for report in reports.values())
    if waited or any(report["stopped"] for report in workers):
        # if a Dask worker closes, its units stop without a signal; here the job was not placed again
        what = f"stopped by {over.by or over.signal or 'a Dask worker that has closed'}"
        return "stopped", max(step, 0), f"{what} while it waited for Dask workers" if waited else what
    return "done", max(step, 0), next((report["ended"] for report in workers if report.get("ended")), "")


def _reason_of(failure: Failure, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why the job failed, and how many other units failed in the same way."""
    reason, unit = failure.reason, failure.unit
    n_others = sum(report.get("cause") == failure.cause != "" for name, report in reports.items() if name != unit)
    return reason.replace(unit, f"{unit} and {plural(n_others, 'other')}", 1) if n_others else reason
