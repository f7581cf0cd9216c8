"""WorkerMetrics: the events that a worker reports, and its part of the summary."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from singa_dask.comm import Address
from singa_dask.conf import JobConf, Phase
from singa_dask.layers import StoreInput
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.nets import Nets
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.training import displayed_rate

AHEAD = 2
"""Steps that may be enqueued on a GPU without being done: it always has work, and the end is never far."""


class StepTimer:
    """Measures the steps of one worker.

    On a CPU a step ends when its calls return. On a GPU calls return early, so a step lasts from the end of the
    previous step, or of a pause, to its own end on the device, as seen by the worker's thread. That thread is at most
    `AHEAD` steps ahead of the device. The sum is the time that all steps have taken together; a single step can appear
    short after a long one.

    Parameters
    ----------
    ops : Ops
        The worker's kernels.

    Attributes
    ----------
    seconds : array of float
        Duration of each step that has ended.
    total_s : float
        Of all of them.
    """

    def __init__(self, ops: Ops) -> None:
        self.seconds = array("d")
        self.total_s = 0.0
        self._transfers = ops.transfers()
        self._since = 0.0
        self._running: deque[Any] = deque()

    def begin(self) -> None:
        """Begin a step."""
        if not self._running:
            self._since = time.perf_counter()

    def end(self) -> None:
        """End a step in the worker's thread."""
        if self._transfers is None:
            self._over()
            return
        self._running.append(self._transfers.mark())
        if len(self._running) > AHEAD:
            self._finish()

    def synchronize(self) -> None:
        """Wait until all steps have ended, before work that is not part of a step."""
        while self._running:
            self._finish()

    def _finish(self) -> None:
        self._running.popleft().synchronize()
        self._over()

    def _over(self) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._since)
        self.total_s += now - self._since
        self._since = now


PHASE_NAMES = {Phase.TRAIN: "train", Phase.VALIDATION: "validation", Phase.TEST: "test"}


class WorkerMetrics:
    """Measures one worker: rates, waits and bad records.

    Parameters
    ----------
    address : Address
    job : JobConf
    nets : Nets
    params : WorkerParams
    step : int
        First step.
    window : mapping
        What `window` returned in the run that is continued; empty for a new run.

    Attributes
    ----------
    shown : int
        Number of steps whose training metrics have been reported.
    bad_records : int
        Number of records that could not be read so far, each once, also if several layers read it.
    """

    def __init__(
        self,
        address: Address,
        job: JobConf,
        nets: Nets,
        params: WorkerParams,
        step: int,
        window: Mapping[str, Any],
    ) -> None:
        self._address = address
        self._net = nets[Phase.TRAIN]
        self._params = params
        self._n_workers = job.cluster.nworkers_per_group
        self._last_step = max(job.train_steps - 1, 0)
        self._rate = job.updater.learning_rate
        self._inputs = [layer for net in nets.each() for layer in net.layers if isinstance(layer, StoreInput)]
        reader = next(layer for layer in self._net.all_layers if layer.traits.is_input)
        self._n_rows = round(reader.features[0].shape[0] * reader.site.batch_shard.count / self._net.context.weight)
        self.shown = window.get("shown", step)
        self._net.restore_metrics(window.get("metrics", {}))
        self._timed = step  # first step of those that `_since` and the waits are about
        self.bad_records = self._n_found = 0
        self._reported: set[tuple[Any, ...]] = set()
        self._since, self._data_s, self._params_s = time.perf_counter(), 0.0, 0.0

    def begin(self, now: float) -> None:
        """Measure rates from now on, a value of ``time.perf_counter``."""
        self._since = now

    def of(self, phase: Phase, step: int, totals: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
        """Return the event with (sum, count) of metrics."""
        return {
            "event": "metrics",
            "phase": PHASE_NAMES[phase],
            "group": self._address.group,
            "worker": self._address.id,
            "step": step,
            "time": time.time(),
            "epoch": max((epoch for layer in self._net.inputs if (epoch := layer.epoch) is not None), default=None),
            "lr": displayed_rate(self._rate, min(step, self._last_step)),
            "metrics": {name: list(pair) for name, pair in totals.items()},
        }

    def of_training(self, last: int) -> dict[str, Any]:
        """Return the event with the metrics of training since the last one; ``last`` is the last step done."""
        now, data_s, params_s = time.perf_counter(), self._data_wait_s(), self._params.wait_s
        n_steps = max(last + 1 - self._timed, 1)
        event = self.of(Phase.TRAIN, last, self._net.take_metrics())
        event["samples_per_s"] = n_steps * self._n_rows / max(now - self._since, 1e-9)
        event["wait_data_ms"] = 1e3 * (data_s - self._data_s) / n_steps
        event["wait_params_ms"] = 1e3 * (params_s - self._params_s) / n_steps
        self.shown = self._timed = last + 1
        self._since, self._data_s, self._params_s = now, data_s, params_s
        return event

    def window(self) -> dict[str, Any]:
        """Return the metrics of the steps that have not been reported, as plain values; empty if there are none."""
        metrics = self._net.metrics_state()
        return {"shown": self.shown, "metrics": metrics} if metrics else {}

    def take_bad(self) -> Iterator[dict[str, Any]]:
        """Yield the facts of each bad record since the last call, once if several layers read the same store."""
        found = sum(len(layer.bad_ids()) for layer in self._inputs)
        if found == self._n_found:
            return
        self._n_found = found
        self.bad_records = len(set().union(*(layer.bad_ids() for layer in self._inputs)))
        for layer in self._inputs:
            for bad in layer.take_bad():
                key = tuple(value for name, value in bad.items() if name != "layer")
                if key not in self._reported:
                    self._reported.add(key)
                    yield bad

    def _data_wait_s(self) -> float:
        return sum(layer.wait_s for layer in self._net.layers if isinstance(layer, StoreInput))

    def waits_s(self) -> tuple[float, float]:
        """Return for how long the worker has waited for records, and for values of params, in seconds."""
        return self._data_wait_s(), self._params.wait_s

    def summary(self, timer: StepTimer, seconds: float) -> dict[str, Any]:
        """Return the part of this worker in the summary of the job, after ``seconds`` of training."""
        step_ms = 1e3 * np.asarray(timer.seconds or [0.0])
        n_steps = max(len(timer.seconds), 1)
        n_local = sum(layer.bytes_local for layer in self._inputs)
        return {
            "seconds": seconds,
            "step_ms": {"median": float(np.median(step_ms)), "p95": float(np.percentile(step_ms, 95))},
            "samples": len(timer.seconds) * self._n_rows * self._net.context.weight / self._n_workers,
            "wait_ms": {"data": 1e3 * self._data_wait_s() / n_steps, "params": 1e3 * self._params.wait_s / n_steps},
            "read": {"local": n_local, "remote": sum(layer.bytes_read for layer in self._inputs) - n_local},
        }
