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
        Traceback; empty if ``reason`` explains the failure by itself.
    unit : str
        The unit that failed; empty if no unit failed.
    cause : str
        Error of the unit without the name of the unit, so that equal errors of several units can be counted.
    is_hosting : bool
        Whether the failure is that no Dask worker could run a process of the job.
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
        Last report of each unit, by unit; empty if the scheduler is gone or no longer knows the job.
    failure : Failure or None
        The first failure.
    signal : str
        Name of the signal that stopped the job; empty without a signal.
    by : str
        Sender of the signal; empty if the client of the job sent it.
    processes : sequence of sequence of str
        The units of each process.
    stuck : sequence of str
        Units that did not end when they were asked to.
    restarts, recomputed_steps, lost_s
        See `Restarts`.
    latest : mapping of str to mapping
        The last metrics of each phase.
    samples_per_s : float
        The last reported speed, summed over the worker groups.
    is_heard : bool
        True if the scheduler reported this end; False if the client gave up waiting for the scheduler.
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
        """Return the end that an event ``over`` describes."""
        known = {each.name: event[each.name] for each in fields(cls) if each.name in event}
        return cls(**{**known, "failure": Failure(**event["failure"]) if event.get("failure") else None})

    @property
    def reason(self) -> str:
        """The reason of the failure; empty if the job did not fail."""
        return self.failure.reason if self.failure else ""


def exit_code_of(state: str, over: JobEnd) -> int:
    """Return the exit code of a job, given its final state and its end."""
    if state == "stopped":
        return SIGNAL_CODES.get(over.signal, 1)
    return over.failure.exit_code if over.failure else 0


def outcome(over: JobEnd) -> tuple[str, int, str]:
    """Return how a job ended: its state, its number of steps, and the reason."""
    reports, failure = over.reports, over.failure
    workers = [report for report in reports.values() if "step_ms" in report]
    step = max((int(report.get("step", -1)) for report in reports.values()), default=-1)
    if failure:
        last = f" Last step: {step}." if failure.exit_code == LostUnitError.exit_code else ""
        return "failed", max(step, 0), _reason_of(failure, reports) + last
    waited = bool(over.signal) and any(report["state"] != "done" for report in reports.values())
    if waited or any(report["stopped"] for report in workers):
        # units also stop without a signal when their Dask worker closes and the job cannot be placed again
        what = f"stopped by {over.by or over.signal or 'a Dask worker that has closed'}"
        return "stopped", max(step, 0), f"{what} while it waited for Dask workers" if waited else what
    return "done", max(step, 0), next((report["ended"] for report in workers if report.get("ended")), "")


def _reason_of(failure: Failure, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Return why the job failed, with the number of other units that failed in the same way."""
    reason, unit = failure.reason, failure.unit
    n_others = sum(report.get("cause") == failure.cause != "" for name, report in reports.items() if name != unit)
    return reason.replace(unit, f"{unit} and {plural(n_others, 'other')}", 1) if n_others else reason
