"""Watch: the metrics that decide on early stopping and on the best checkpoints. Only the first worker uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.conf import JobConf
from singa_dask.conf.watched import EarlyStoppingConf, is_less_better, split_metric
from singa_dask.errors import ConfigError, Problem

__all__ = ["Watch"]

Totals = Mapping[str, Sequence[float]]


class Watch:
    """Tracks the metrics that ``early_stopping`` and ``keep_checkpoints`` name.

    Parameters
    ----------
    job : JobConf
    state : mapping
        Result of ``state()`` in the checkpoint that the run continues from; empty for a new run.

    Attributes
    ----------
    phases : set of str
        Phases with such a metric: ``"validation"``, ``"test"``.
    """

    def __init__(self, job: JobConf, state: Mapping[str, Any]) -> None:
        keep = job.keep_checkpoints
        confs = {"early_stopping": job.early_stopping, "keep_checkpoints": keep if keep and keep.metric else None}
        self._keys = {conf.metric: key for key, conf in confs.items() if conf is not None}
        self.phases = {split_metric(metric)[0] for metric in self._keys}
        self._stopping = _Stopping(job.early_stopping, state) if job.early_stopping else None
        stored = state.get("metrics", {})
        self._latest: dict[str, dict[str, float]] = {
            metric: stored[metric] for metric in self._keys if metric in stored
        }

    @property
    def reason(self) -> str:
        """Why the training is to end; empty if it is not."""
        return self._stopping.reason if self._stopping else ""

    def add(self, phase: str, step: int, measured: Sequence[Totals]) -> None:
        """Add the (sum, count) of the metrics of a test, from each worker of the group.

        Raises
        ------
        ConfigError
            The net has no such metric.
        """
        known = sorted({name for each in measured for name in each})
        for metric, key in self._keys.items():
            where, name = split_metric(metric)
            if where != phase:
                continue
            total, count = (sum(each.get(name, (0.0, 0.0))[i] for each in measured) for i in (0, 1))
            if not count:
                message = f"the {phase} net has no metric {name!r}. Known: {', '.join(known) or 'none'}."
                raise ConfigError(Problem((key, "metric"), message))
            value = total / count
            if math.isfinite(value):
                self._latest[metric] = {"value": value, "step": step}
            if self._stopping and metric == self._stopping.conf.metric:
                self._stopping.add(step, value)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; empty if the job tracks no metric."""
        kept: dict[str, Any] = {"metrics": dict(self._latest)} if self._keys else {}
        return kept | ({"early_stopping": self._stopping.state()} if self._stopping else {})


class _Stopping:
    """Counts consecutive tests without a better value."""

    def __init__(self, conf: EarlyStoppingConf, state: Mapping[str, Any]) -> None:
        self.conf = conf
        self._sign = -1.0 if is_less_better(conf.metric, conf.mode) else 1.0
        stored = state.get("early_stopping", {})
        known = stored if stored.get("metric") == conf.metric else {}
        self._best: float | None = known.get("best")
        self._best_step: int = known.get("best_step", -1)
        self._n_worse: int = known.get("n_worse", 0)

    def add(self, step: int, value: float) -> None:
        better = math.isfinite(value) and (
            self._best is None or self._sign * (value - self._best) > self.conf.min_delta
        )
        if better:
            self._best, self._best_step, self._n_worse = value, step, 0
        else:
            self._n_worse += 1

    @property
    def reason(self) -> str:
        if self._n_worse < self.conf.patience:
            return ""
        best = "no finite value" if self._best is None else f"{self._best:.6g} at step {self._best_step}"
        return f"early stopping: {self.conf.metric} has not improved {self._n_worse} times in a row. Best: {best}."

    def state(self) -> dict[str, Any]:
        return {
            "metric": self.conf.metric,
            "best": self._best,
            "best_step": self._best_step,
            "n_worse": self._n_worse,
        }
