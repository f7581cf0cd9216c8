"""Trainer: compute the batches of one worker, in training and in tests."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores import Store
from singa_dask.inputs import StoreInput
from singa_dask.layers import Layer
from singa_dask.layers.metrics import Totals, add_totals
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops
from singa_dask.redaction import redact
from singa_dask.runtime.checkpoints.layer_states import LayerState, take_states
from singa_dask.runtime.planning.nets import Nets, phase_name
from singa_dask.runtime.units.channel import Channel
from singa_dask.runtime.units.learning_observer import LearningObserver
from singa_dask.runtime.units.run_state import is_due
from singa_dask.runtime.units.step_timer import StepTimer
from singa_dask.runtime.units.worker_metrics import WorkerMetrics
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.training import ALGORITHMS
from singa_dask.training.pass_metrics import PassMetrics

logger = logging.getLogger(__name__)


class Trainer:
    """Runs the nets of one worker.

    Parameters
    ----------
    nets : Nets
        Allocated nets from `build_nets`.
    params : WorkerParams
        Exchanges the params of the training net with servers.
    step : int
        First step of the worker.
    window : mapping
        Metrics that the resumed run had not reported; see `WorkerMetrics`.

    Attributes
    ----------
    net : NeuralNet
        The training net.
    """

    def __init__(
        self, channel: Channel, job: JobConf, nets: Nets, params: WorkerParams, step: int, window: Mapping[str, Any]
    ) -> None:
        self.address = channel.address
        self.nets = nets
        self.net = nets[Phase.TRAIN]
        self._job = job
        self._params = params
        self._timer = StepTimer(self.net.ops)
        self.metrics = WorkerMetrics(channel, job, nets, params, self._timer, step, window)
        self._learning = LearningObserver(nets, job, step)
        conf = job.train_one_batch
        algorithm = ALGORITHMS.find(conf.alg)
        self._algorithms = {net: algorithm(net, params.collect, params.update, conf) for net in nets.each()}
        self._running = self._algorithms[self.net]
        self.net.is_watched = job.debug
        if params.mirror is None and not job.debug:  # a mirror must copy each gradient as soon as it is computed
            self._running.capture_steps()
        trains = step < job.train_steps
        self._readers = [layer for layer in self.net.layers if isinstance(layer, StoreInput)] if trains else []

    @property
    def layer(self) -> Layer | None:
        """The layer that is being computed, for error messages; None between layers."""
        return self._running.layer

    def read_ahead(self) -> None:
        """Open the stores of the training net and start reading in the background."""
        for layer in self._readers:
            self._running.layer = layer
            layer.read_ahead()
        self._running.layer = None

    def wait_for_records(self) -> None:
        """Wait until each input layer has read its first batch."""
        for layer in self._readers:
            layer.wait_for_batch()

    def open_stores(self) -> list[Store]:
        """Return the open stores of all nets."""
        layers = (layer for net in self.nets.each() for layer in net.layers)
        return [layer.store for layer in layers if isinstance(layer, StoreInput) and layer.store is not None]

    def remote_versions(self) -> dict[str, str]:
        """Return the versions of all open remote files, by URL; see `Store.remote_versions`."""
        files = (file for store in self.open_stores() for file in store.remote_versions().items())
        return {redact(url): version for url, version in files}

    def position(self, step: int) -> dict[str, Any]:
        """Return the step, the readers' cursors and the unreported metrics, for a checkpoint.

        ``cursors`` are reading positions by phase and layer.
        """
        # tests over all records always start at the first record, so they have no cursor
        moving = [phase for phase in self.nets if phase not in self.nets.passes]
        cursors = {phase_name(phase): self.nets[phase].cursors() for phase in moving}
        window = self.metrics.window()
        return {"step": step, "cursors": cursors, "windows": {str(self.address.id): window} if window else {}}

    def states(self) -> list[LayerState]:
        """Return copies of the states of the layers of all nets."""
        return take_states({phase_name(phase): net for phase, net in self.nets.items()})

    def begin(self, now: float) -> None:
        """Begin to measure rates at ``now``, a value of ``time.perf_counter``."""
        self.metrics.begin(now)
        self._learning.begin()

    def train(self, step: int) -> None:
        """Train on one batch; report the metrics if a report is due after this step."""
        self._timer.begin()
        self._running = self._algorithms[self.net]
        try:
            self._running.train_one_batch(step)
            self._params.flush()
        finally:
            self.metrics.report_bad_records()
        self._timer.end()
        self._learning.after_step(step)
        if is_due(step, self._job.disp_freq, self._job.disp_after):
            self._report(step)

    def test(self, phase: Phase, n_batches: int | None, step: int) -> tuple[Totals, PassMetrics]:
        """Run the net of a phase over ``n_batches`` batches, or over all records if it is None.

        Returns
        -------
        Totals, PassMetrics
            The (sum, count) of each metric of layers, by name; and the values of the job's ``metrics``.
        """
        self.collect_all()
        self._learning.begin_test(phase)
        net = self.nets[phase]
        metrics = PassMetrics(net, self._job.metrics)
        if n_batches is not None:
            totals = self._measure(net, phase, n_batches, step, metrics)
        else:
            n, weight, rest = self.nets.passes[phase]
            totals = self._measure(net, phase, n, step, metrics)
            if rest:
                totals = add_totals([totals, self._measure(rest, phase, 1, step, metrics, weight)])
        return totals, metrics

    def _measure(
        self, net: NeuralNet, phase: Phase, n_batches: int, step: int, metrics: PassMetrics, weight: float = 1.0
    ) -> Totals:
        """Run a net over some batches; return the (sum, count) of each metric, see `NeuralNet.take_metrics`."""
        self._running = self._algorithms[net]
        net.context.step = step
        try:
            for _ in range(n_batches):
                net.cancellation.check()  # a worker without layers checks for cancellation only here
                self._running.test_one_batch(phase)
                metrics.add(net)
                self._learning.count(phase, net)
        finally:
            self.metrics.report_bad_records()
        return net.take_metrics(weight)

    def synchronize(self) -> None:
        """Wait for the device, then check the losses of the last steps. A GPU may have computed them only now."""
        self._timer.synchronize()
        self._running = self._algorithms[self.net]
        self._running.check_losses(wait=True)

    def collect_all(self) -> None:
        """Wait for the parameter updates of all steps so far, then check the updated params."""
        self.synchronize()
        self._params.collect_all()
        self._running.check_params()

    def report_rest(self, n_steps: int) -> None:
        """Report the steps that were not reported yet, at the end after ``n_steps`` steps."""
        if self._job.disp_freq > 0 and n_steps > max(self.metrics.shown, self._job.disp_after):
            self._report(n_steps - 1)

    def _report(self, last: int) -> None:
        """Report the training metrics since the last report, up to step ``last``."""
        self.synchronize()
        self.metrics.report_training(last)
        if self._job.debug:
            self._params.collect_all()
            _log_layers(self.net, last)

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the part of this worker in the summary of the job, after ``seconds`` of training."""
        return {**self.metrics.summary(seconds), "learning": self._learning.facts()}


def _log_layers(net: NeuralNet, step: int) -> None:
    """Log a line for each layer of this worker after a training step.

    For an InnerProduct, for example::

        step 100, fc1 (64, 32): data 0.4312, grad 0.0001927; fc1.weight (32, 784): value 0.02831, grad 0.0004106

    The numbers are means of absolute values. Data and gradients belong to this step, while params already include its
    update. If a layer overwrites the output of its source layer, the source shows the values of that layer.
    """
    for layer in net.layers:
        parts = []
        for feature in layer.features:
            data = feature.data if feature.has_data else None
            parts.append(f"{feature.shape}: {_sizes(net.ops, data=data, grad=feature.grad)}")
        for param in layer.params if layer.site.prototype is None else ():
            value, grad = param.data if param.has_data else None, param.grad if param.has_grad else None
            parts.append(f"{param.name} {param.shape}: {_sizes(net.ops, value=value, grad=grad)}")
        # several outputs may have equal texts, which are shown once
        logger.info("step %d, %s %s", step, layer.name, "; ".join(dict.fromkeys(parts)))


def _sizes(ops: Ops, **arrays: Array | None) -> str:
    """Return the mean absolute value of each array that is not None, as text."""
    sizes = []
    for name, values in arrays.items():
        if values is not None:
            x = ops.to_host(values)
            with np.errstate(over="ignore", invalid="ignore"):
                mean = np.mean(np.abs(x, dtype=np.float32), dtype=np.float64) if x.size else 0.0
            sizes.append(f"{name} {mean:.4g}")
    return ", ".join(sizes) or "not computed"
