"""Evaluation: test and validate a net during training, and stop if a metric does not improve."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.conf import JobConf, Phase
from singa_dask.conf.metrics import EarlyStoppingConf, is_less_better, split_metric
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.metrics import Totals, add_totals
from singa_dask.runtime.planning.nets import phase_name
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.run_state import RunState, is_due
from singa_dask.runtime.units.trainer import Trainer
from singa_dask.shown import plural
from singa_dask.training.pass_metrics import PassMetrics


class Evaluation:
    """Runs the tests and validations of one worker when they are due.

    The first worker of the first group collects the metrics of its group, and decides whether the training ends early.

    Parameters
    ----------
    manifest : mapping
        Manifest of the checkpoint from which the run resumed; empty for a new run.
    """

    def __init__(
        self, job: JobConf, trainer: Trainer, state: RunState, channel: Channel, manifest: Mapping[str, Any]
    ) -> None:
        self._trainer = trainer
        self._state = state
        self._channel = channel
        # phase -> number of batches (None for all records), steps between two tests, and first step
        self._tests = {
            Phase.VALIDATION: (job.validate_steps, job.validate_freq, job.validate_after),
            Phase.TEST: (job.test_steps, job.test_freq, job.test_after),
        }
        self._watch = MetricWatch(job, manifest)
        self.restores_best = job.early_stopping is not None and job.early_stopping.restore_best
        self._others = range(1, job.cluster.nworkers_per_group)
        # step before which the newest tests ran
        self._tested = state.step if manifest.get("tested") else -1
        # (phase, step) -> metrics of other workers, which may be done before this worker
        self._measured: defaultdict[tuple[str, int], list[Message]] = defaultdict(list)
        channel.on("measured", lambda message: self._measured[message.info["phase"], message.step].append(message))

    @property
    def best_step(self) -> int:
        """Step with the best value. Commands use the params of this step; -1 without ``restore_best``."""
        return self._watch.best_step if self.restores_best else -1

    def begin(self) -> None:
        """End a resumed run immediately if early stopping had already ended it."""
        self._state.end_early(self._watch.reason)

    def run_due(self) -> None:
        """Run the tests and validations that are due before this step."""
        if self._state.step == self._tested:
            return
        for phase, (n_batches, freq, after) in self._tests.items():
            if phase in self._trainer.nets and is_due(self._state.step, freq, after):
                self._test(phase, n_batches)
        self._tested = self._state.step

    def run_last(self) -> None:
        """Run every test and validation once more at the end, unless the training was stopped."""
        state = self._state
        counts = self._tested != state.step  # False if early stopping has already counted the tests of this step
        for phase, (n_batches, freq, after) in self._tests.items():
            # after the last step, test even if a user has stopped the job: other workers may already wait in this test
            is_left = state.is_trained or (state.reason and not is_due(state.step, freq, after))
            if phase in self._trainer.nets and is_left:
                self._test(phase, n_batches, counts)
        if state.is_trained:
            self._tested = state.step

    def state(self) -> dict[str, Any]:
        """Return the state of tests and early stopping, for a checkpoint of the current step."""
        return {"tested": self._tested == self._state.step, **self._watch.state()}

    def _test(self, phase: Phase, n_batches: int | None, counts: bool = True) -> None:
        name, step = phase_name(phase), self._state.step
        totals, metrics = self._trainer.test(phase, n_batches, step)
        is_watched = counts and name in self._watch.phases and not self._state.reason
        if not self._state.is_first:
            self._trainer.metrics.report(phase, step, totals)
            if is_watched or metrics:
                self._send(name, totals, metrics)
            if is_watched:
                self._judge(self._channel.wait_for("judged").info)
            return
        others = self._receive(name) if is_watched or metrics else []
        for message in others:
            metrics.merge(dict(zip(message.info["arrays"], message.arrays, strict=True)))
        totals = {**totals, **{key: (value, 1.0) for key, value in metrics.values().items()}}
        self._trainer.metrics.report(phase, step, totals)
        if is_watched:
            self._watch.add(name, step, [totals, *(message.info["totals"] for message in others)])
            info = {"reason": self._watch.reason, "saves": self.restores_best and self._watch.is_best_at(step)}
            for other in self._others:
                self._channel.send("judged", Address.worker(0, other), info=info)
            self._judge(info)

    def _judge(self, info: Mapping[str, Any]) -> None:
        """Do what the first worker decided: end the training, or save a checkpoint of the best params."""
        if info["saves"]:
            self._state.save_at["checkpoint"] = self._state.step
        self._state.end_early(str(info["reason"]))

    def _send(self, phase: str, totals: Totals, metrics: PassMetrics) -> None:
        """Send the metrics of this worker to the first worker."""
        state = metrics.state()
        arrays = tuple(map(np.ascontiguousarray, state.values()))
        info = {"phase": phase, "totals": {name: list(pair) for name, pair in totals.items()}, "arrays": list(state)}
        self._channel.send("measured", Address.worker(0, 0), step=self._state.step, info=info, arrays=arrays)

    def _receive(self, phase: str) -> list[Message]:
        """Wait for the metrics of the other workers of the group; return them in the order of the workers."""
        key = phase, self._state.step
        while len(self._measured[key]) < len(self._others):
            self._channel.receive("metrics of the other workers")
        return sorted(self._measured.pop(key), key=lambda message: message.src)


class MetricWatch:
    """Tracks the metrics that ``early_stopping`` and ``keep_checkpoints`` name.

    Counts how many tests in a row did not improve the metric of ``early_stopping``.

    Parameters
    ----------
    state : mapping
        Result of the method `state` in the checkpoint from which the run resumed; empty for a new run.

    Attributes
    ----------
    phases : set of str
        The phases, test or validation, that have a tracked metric.
    """

    def __init__(self, job: JobConf, state: Mapping[str, Any]) -> None:
        keep = job.keep_checkpoints
        confs = {"early_stopping": job.early_stopping, "keep_checkpoints": keep if keep and keep.metric else None}
        self._keys = {conf.metric: key for key, conf in confs.items() if conf is not None}
        self.phases = {split_metric(metric)[0] for metric in self._keys}
        values = state.get("metrics", {})
        self._latest: dict[str, dict[str, float]] = {
            metric: values[metric] for metric in self._keys if metric in values
        }
        self._conf = job.early_stopping
        known = state.get("early_stopping", {})
        if self._conf is None or known.get("metric") != self._conf.metric:
            known = {}
        self._best: float | None = known.get("best")
        self.best_step: int = known.get("best_step", -1)
        self._n_worse: int = known.get("n_worse", 0)

    @property
    def reason(self) -> str:
        """Reason why early stopping ends the training; empty if the training continues."""
        if self._conf is None or self._n_worse < self._conf.patience:
            return ""
        best = "no finite value" if self._best is None else f"{self._best:.6g} at step {self.best_step}"
        worse = plural(self._n_worse, "time")
        return f"early stopping: {self._conf.metric} has not improved {worse} in a row. Best: {best}."

    def add(self, phase: str, step: int, measured: Sequence[Mapping[str, Sequence[float]]]) -> None:
        """Add the metrics of a test.

        Parameters
        ----------
        measured : sequence of mapping
            For each worker, the (sum, count) of each metric by name.

        Raises
        ------
        ConfigError
            The net lacks a tracked metric.
        """
        known = add_totals(measured)
        for metric, key in self._keys.items():
            where, name = split_metric(metric)
            if where != phase:
                continue
            if name not in known:
                message = f"the {phase} net has no metric {name!r}. Known: {', '.join(sorted(known)) or 'none'}."
                raise ConfigError(Problem((key, "metric"), message))
            total, count = known[name]
            if not count:
                continue  # the labels of all rows are ignored
            value = total / count
            if math.isfinite(value):
                self._latest[metric] = {"value": value, "step": step}
            if self._conf and metric == self._conf.metric:
                self._count(self._conf, step, value)

    def _count(self, conf: EarlyStoppingConf, step: int, value: float) -> None:
        sign = -1.0 if is_less_better(conf.metric, conf.mode) else 1.0
        known, delta = self._best, conf.min_delta
        best = better = math.isfinite(value) and (known is None or sign * (value - known) > delta)
        if conf.every_best and known is not None and math.isfinite(value):
            best, better = sign * value > sign * known, sign * value >= sign * known + delta
        if best:
            self._best, self.best_step = value, step
        self._n_worse = 0 if better else self._n_worse + 1

    def is_best_at(self, step: int) -> bool:
        """Return whether ``step`` has the best value so far of the ``early_stopping`` metric."""
        return self.best_step == step

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; empty if the job tracks no metric."""
        state: dict[str, Any] = {"metrics": dict(self._latest)} if self._keys else {}
        if self._conf:
            stopping = {"metric": self._conf.metric, "best": self._best, "best_step": self.best_step}
            stopping["restore_best"] = self._conf.restore_best
            state["early_stopping"] = {**stopping, "n_worse": self._n_worse}
        return state
