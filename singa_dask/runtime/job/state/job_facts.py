"""JobFacts: the facts that users see of a queued, running or ended job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from singa_dask.conf import ClusterConf
from singa_dask.redaction import redact
from singa_dask.runtime.job.names import SIGNAL_CODES
from singa_dask.runtime.planning.layout import plan_processes

ROW = (
    "id", "name", "owner", "run_url", "state", "step", "train_steps", "samples_per_s", "began", "ended", "reason",
    "exit_code", "n_events",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The facts that users see of a job. The defaults describe a queued job.

    Attributes
    ----------
    topology : mapping
        The topology, as in ``summary.json``.
    train_steps : int
        Number of training steps of the job.
    state : str
        queued, starting, running, restarting, stopping, done, failed or stopped.
    step : int
        Step of the slowest worker group; -1 before the first step.
    steps : mapping of str to int
        Step of each worker group, by the number of the group.
    metrics : mapping of str to mapping
        The latest metrics of each phase.
    samples_per_s : float
        Records per second, summed over the worker groups.
    began, ended : float
        Times of start and end, in seconds since the epoch; ``ended`` is None until the job ends.
    reason : str
        Why the job waits or has ended; may be empty.
    exit_code : int or None
        Exit code of an ended job; None while the job runs.
    place : int
        Position in the queue, 1 for the first; 0 if the job is not queued.
    """

    id: str
    name: str = ""
    owner: str = ""
    run_url: str = ""
    topology: Mapping[str, Any] = field(default_factory=dict)
    train_steps: int = 0
    state: str = "queued"
    step: int = -1
    steps: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    samples_per_s: float = 0.0
    began: float = 0.0
    ended: float | None = None
    reason: str = ""
    exit_code: int | None = 0
    detached: bool = False
    priority: int = 0
    restarts: int = 0
    n_events: int = 0
    place: int = 0

    @classmethod
    def of_run(cls, run: Mapping[str, Any]) -> JobFacts:
        """Return the facts of a job before it begins; ``run`` has the fields of its `Submission`."""
        job = json.loads(run["job"])
        return cls(
            id=run["job_id"],
            name=job["name"],
            owner=run["owner"],
            run_url=redact(run["run_url"]),
            topology=plan_processes(ClusterConf.model_validate(job["cluster"])).describe(),
            train_steps=job["train_steps"],
            priority=run["priority"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain values, with ``place`` only for a queued job."""
        facts = asdict(self)
        if not self.place:
            del facts["place"]
        return facts

    def row(self) -> dict[str, Any]:
        """Return the row that describes the job in a list; see `Views.list`."""
        metrics = self.metrics.get("train", {})
        loss = next((metrics[name] for name in sorted(metrics) if name.endswith("loss")), None)
        place = f", place {self.place}" if self.place else ""
        priority = f", priority {self.priority}" if self.priority else ""
        is_killed = self.state == "failed" and self.exit_code in SIGNAL_CODES.values()
        standing = f"{'killed' if is_killed else self.state}{place}{priority}"
        return {"loss": loss, "standing": standing, **{key: getattr(self, key) for key in ROW}}
