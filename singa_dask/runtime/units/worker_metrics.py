"""WorkerMetrics: report the metrics, rates, waits and unreadable records of one worker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.inputs import StoreInput
from singa_dask.layers.metrics import Totals
from singa_dask.net import NeuralNet
from singa_dask.runtime.planning.machine import core_wait_s
from singa_dask.runtime.planning.nets import Nets, phase_name
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.step_timer import StepTimer
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.training import displayed_rate


def group_rows(net: NeuralNet) -> int:
    """Return the number of rows in a batch of the whole worker group."""
    reader = next(layer for layer in net.all_layers if layer.traits.role == "input")
    return round(reader.features[0].shape[0] * reader.site.batch_shard.count / net.context.weight)


class WorkerMetrics:
    """Measures and reports rates, waits, unreadable records and metrics of one worker.

    Parameters
    ----------
    timer : StepTimer
        Measures the steps of the worker.
    step : int
        First step of the worker.
    window : mapping
        Result of the method `window` in the resumed run; empty for a new run.

    Attributes
    ----------
    shown : int
        Number of steps whose training metrics have been reported.
    bad_records : int
        Number of unreadable records so far. A record that several layers read counts once.
    """

    def __init__(
        self,
        channel: Channel,
        job: JobConf,
        nets: Nets,
        params: WorkerParams,
        timer: StepTimer,
        step: int,
        window: Mapping[str, Any],
    ) -> None:
        self._channel = channel
        self._timer = timer
        self._net = nets[Phase.TRAIN]
        self._params = params
        self._n_workers = job.cluster.nworkers_per_group
        self._last_step = max(job.train_steps - 1, 0)
        self._rate = job.updater.learning_rate
        self._inputs = [layer for net in nets.each() for layer in net.layers if isinstance(layer, StoreInput)]
        self._n_rows = group_rows(self._net)
        self.shown = window.get("shown", step)
        self._net.restore_metrics(window.get("metrics", {}))
        self._timed = step  # first step of the interval that is being measured
        self.bad_records = self._n_bad = 0
        self._reported: set[tuple[Any, ...]] = set()
        self._since, self._data_s, self._params_s, self._cores_s = time.perf_counter(), 0.0, 0.0, 0.0

    def begin(self, now: float) -> None:
        """Begin to measure rates at ``now``, a value of ``time.perf_counter``. Call it in the training thread."""
        self._since, self._cores_s = now, core_wait_s()

    def report(self, phase: Phase, step: int, totals: Totals, **more: float) -> None:
        """Report metrics. ``totals`` has the (sum, count) of each metric, and ``more`` has additional values."""
        self._channel.emit(
            {
                "event": "metrics",
                "phase": phase_name(phase),
                "group": self._channel.address.group,
                "worker": self._channel.address.id,
                "step": step,
                "time": time.time(),
                "epoch": max((epoch for layer in self._net.inputs if (epoch := layer.epoch) is not None), default=None),
                "lr": displayed_rate(self._rate, min(step, self._last_step)),
                "metrics": {name: list(pair) for name, pair in totals.items()},
                **more,
            }
        )

    def report_training(self, last: int) -> None:
        """Report the training metrics since the last report, up to step ``last``."""
        now, (data_s, params_s) = time.perf_counter(), self._waits_s()
        n_steps = max(last + 1 - self._timed, 1)
        self.report(
            Phase.TRAIN,
            last,
            self._net.take_metrics(),
            samples_per_s=n_steps * self._n_rows / max(now - self._since, 1e-9),
            wait_data_ms=1e3 * (data_s - self._data_s) / n_steps,
            wait_params_ms=1e3 * (params_s - self._params_s) / n_steps,
        )
        self.shown = self._timed = last + 1
        self._since, self._data_s, self._params_s = now, data_s, params_s

    def window(self) -> dict[str, Any]:
        """Return the metrics of steps that were not reported yet, as plain values; empty if there are none."""
        metrics = self._net.metrics_state()
        return {"shown": self.shown, "metrics": metrics} if metrics else {}

    def report_bad_records(self) -> None:
        """Report each new unreadable record. A record that several layers read is reported once."""
        n_bad = sum(len(layer.bad_ids()) for layer in self._inputs)
        if n_bad == self._n_bad:
            return
        self._n_bad = n_bad
        self.bad_records = len(set().union(*(layer.bad_ids() for layer in self._inputs)))
        for layer in self._inputs:
            for bad in layer.take_bad():
                key = tuple(value for name, value in bad.items() if name != "layer")
                if key not in self._reported:
                    self._reported.add(key)
                    self._channel.emit({"event": "bad_record", "unit": str(self._channel.address), **bad})

    def times_s(self) -> tuple[float, float, float]:
        """Return, in seconds, the duration of all steps so far, and their waits for records and for params."""
        return self._timer.total_s, *self._waits_s()

    def _waits_s(self) -> tuple[float, float]:
        data_s = sum(layer.wait_s for layer in self._net.layers if isinstance(layer, StoreInput))
        return data_s, self._params.wait_s

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the part of this worker in the summary of the job, after ``seconds`` of training."""
        step_ms = 1e3 * np.asarray(self._timer.seconds or [0.0])
        n_steps = len(self._timer.seconds)
        waits_s = (*self._waits_s(), core_wait_s() - self._cores_s)
        data_ms, params_ms, cores_ms = (1e3 * wait_s / n_steps if n_steps else 0.0 for wait_s in waits_s)
        n_local = sum(layer.bytes_local for layer in self._inputs)
        return {
            "seconds": seconds,
            "step_ms": {"median": float(np.median(step_ms)), "p95": float(np.percentile(step_ms, 95))},
            "samples": n_steps * self._n_rows * self._net.context.weight / self._n_workers,
            "wait_ms": {"data": data_ms, "params": params_ms, "cores": cores_ms},
            "read": {"local": n_local, "remote": sum(layer.bytes_read for layer in self._inputs) - n_local},
        }
