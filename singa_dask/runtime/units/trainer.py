"""Trainer: computes the batches of one worker, in training and in tests, and reports their metrics."""

from __future__ import annotations

import contextlib
import logging
import time
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.scaling import Moments
from singa_dask.data.stores import Store
from singa_dask.errors import DataError
from singa_dask.layers import Layer, StoreInput
from singa_dask.layers.activation import Activation, ReLU
from singa_dask.layers.conv import Convolution
from singa_dask.layers.metrics import Totals, add_totals
from singa_dask.layers.neuron import InnerProduct
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops
from singa_dask.redaction import redact
from singa_dask.runtime.checkpoints.checkpoint import LayerState, take_states
from singa_dask.runtime.planning.nets import Nets, phase_name
from singa_dask.runtime.planning.placement import core_wait_s
from singa_dask.runtime.units.run_state import Channel, is_due
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.training import ALGORITHMS, displayed_rate
from singa_dask.training.pass_metrics import PassMetrics

# Whether a net has learnt: what each worker notes of its training, and what the notes of all say.
#
# Nothing here changes a value. Labels are counted in tests, or in the first epoch of a job without tests; activations
# are looked at in four steps, params before the first step and after the last.


MIN_RECORDS, DEAD = 64, 0.9
"""A unit is dead that was zero for at least so many records, and a layer of which so large a share is."""
SAMPLE = 4096
"""Values of a param that are compared before and after the training, and most outputs of a loss for values."""


class LearningFacts:
    """Notes labels and targets, and layers that do not work.

    Parameters
    ----------
    nets : mapping of Phase to NeuralNet
    job : JobConf
    step : int
        First step of the run.
    """

    def __init__(self, nets: Mapping[Phase, NeuralNet], job: JobConf, step: int) -> None:
        self._net, self._updater, n_steps = nets[Phase.TRAIN], job.updater, job.train_steps
        # in the second half, when the net has changed
        self._is_new = step == 0
        self._looks = {step + (n_steps - step) * i // 8 - 1 for i in range(5, 9)}
        self._until = float("inf") if len(nets) == 1 else 0.0
        self._answers: dict[str, dict[str, tuple[Layer, Any]]] = {}
        self._alive: dict[str, tuple[int, Any]] = {}
        self._before: dict[str, Array] = {}

    def begin(self) -> None:
        """Note the values of params before the first step of the run; of one that goes on they are not known."""
        self._before = self._samples() if self._is_new else {}

    def begin_test(self, phase: Phase) -> None:
        """Forget what earlier tests have counted."""
        self._answers.pop(phase_name(phase), None)

    def count(self, phase: Phase, net: NeuralNet) -> None:
        """Count the labels and targets of a batch that a net of a phase has computed."""
        known = self._answers.setdefault(phase_name(phase), {})
        for layer in net.layers:
            kind = layer.traits.predicts if layer.traits.is_loss else ""
            n = layer.features[0].size if layer.features else 0
            if not kind or layer.sources[1].requires_grad or (kind != "classes" and n > SAMPLE):
                continue
            # an unrolled net has several copies of a loss
            loss, before = known.get(layer.conf_name, (layer, None))
            if kind == "classes" and layer.sources[1].labels is None:
                continue  # an algorithm of a user's may compute other layers only
            if kind == "classes":
                labels = np.asarray(layer.labels(1))
                counts = np.bincount(labels[labels >= 0], minlength=n)  # ignored ones are -1
                known[layer.conf_name] = loss, counts if before is None else before + counts
            else:
                moments = Moments.of(layer.ops.to_host(layer.rows(1)))
                known[layer.conf_name] = loss, moments if before is None else before.merged(moments)

    def after_step(self, step: int) -> None:
        """Look at what a training step has left, where it is due."""
        epoch = max((layer.epoch or 0.0 for layer in self._net.inputs), default=0.0)
        self._until = min(self._until, epoch + 1)
        if epoch < self._until:
            self.count(Phase.TRAIN, self._net)
        for layer in self._net.layers if step in self._looks else ():
            if isinstance(layer, ReLU | Activation) and layer.features:
                y = self._net.ops.to_host(layer.features[0].data)
                alive = np.any(y, axis=(0, *range(2, y.ndim)))
                n, before = self._alive.get(layer.conf_name, (0, False))
                self._alive[layer.conf_name] = n + len(y), before | alive

    def facts(self) -> dict[str, Any]:
        """Return what `facts_of_workers` combines, as plain values."""
        answers = {
            phase: {name: _described(loss, counted) for name, (loss, counted) in losses.items()}
            for phase, losses in self._answers.items()
        }
        after, norm = self._samples(), np.linalg.norm
        changes = {name: float(norm(after[name] - x) / norm(x)) for name, x in self._before.items() if x.any()}
        layers = [layer for layer in self._net.layers if layer.site.prototype is None]
        seen = {name: np.mean(alive) for name, (n, alive) in self._alive.items() if n >= MIN_RECORDS}
        broken = {
            "constant": [each.conf_name for each in layers if getattr(each, "has_one_value", False)],
            "equal": [each.conf_name for each in layers if _has_equal_units(each)],
            "dead": [name for name, share in seen.items() if share <= 1 - DEAD],
        }
        return {"answers": answers, "broken": broken, "changes": changes}

    def _samples(self) -> dict[str, Array]:
        """Return some values of each param that has columns and is trained."""
        values = {}
        for owner in self._net.owners:
            lr_scale, _ = self._updater.scales_of(owner.name, owner.conf.lr_scale, owner.conf.wd_scale)
            if len(owner.shape) > 1 and lr_scale and owner.has_data:
                values[owner.name] = self._net.ops.to_host(owner.values).reshape(-1)
        return {name: x[:: len(x) // SAMPLE + 1].astype(np.float64) for name, x in values.items()}


def _described(loss: Layer, counted: Any) -> dict[str, Any]:
    """Return as plain values what is counted of a loss layer, and what its metrics depend on beside that."""
    names: list[str] = []
    with contextlib.suppress(DataError):
        names = list(loss.context.class_names.find(loss.conf.srclayers[1]))
    # weights of records, and smoothed labels, change what a loss is compared with
    has_loss = len(loss.sources) == 2 and not any(
        getattr(loss, name, None) for name in ("smoothing", "factors", "delta")
    )
    facts = {"scale": getattr(loss, "scale", 1.0), "topk": getattr(loss, "topk", 1), "has_loss": has_loss}
    plain = [np.asarray(each).tolist() for each in counted]
    return {"kind": loss.traits.predicts, "names": names, "counted": plain, **facts}


def _has_equal_units(layer: Layer) -> bool:
    """Tell whether all units of a layer have the same weights."""
    if not isinstance(layer, InnerProduct | Convolution):
        return False
    weight = layer.ops.to_host(layer.weight.data)
    units = weight.T if getattr(layer, "transpose", False) else weight
    return len(units) > 1 and bool((units == units[:1]).all())


def facts_of_workers(reports: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine what the workers of a group have noted.

    Returns
    -------
    dict
        ``baselines``: by phase and metric the ``value`` that the best constant answer has, the ``answer`` in words, and
        on how many ``records``. ``broken``: names of layers that are ``constant`` or ``dead``, or whose units are
        ``equal``. ``changes``: of each param, in parts of its size at the start.
    """
    baselines: dict[str, dict[str, Any]] = {}
    broken: dict[str, list[str]] = {}
    parts: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    changes: dict[str, float] = {}
    for report in reports:
        changes.update(report["changes"])
        for kind, names in report["broken"].items():
            broken[kind] = [*dict.fromkeys([*broken.get(kind, ()), *names])]
        for phase, layers in report["answers"].items():
            for layer, facts in layers.items():
                parts.setdefault((phase, layer), []).append(facts)
    n_losses = Counter(phase for phase, _ in parts)
    for (phase, layer), reports_of_loss in parts.items():
        for name, facts in _constant_answers(reports_of_loss):
            baselines.setdefault(phase, {})[name if n_losses[phase] == 1 else f"{layer}.{name}"] = facts
    return {"baselines": baselines, "broken": broken, "changes": changes}


def _constant_answers(parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the metrics of the best constant answer to what the workers have counted of a loss layer."""
    loss, counted = parts[0], [part["counted"] for part in parts]
    answers: dict[str, tuple[Any, str]]
    if loss["kind"] == "classes":
        counts = np.sum(counted, axis=0)
        n = int(counts.sum())
        p = counts / max(n, 1)
        top, names = np.argsort(-p, kind="stable")[: loss["topk"]].tolist(), loss["names"]
        said = " or ".join(repr(names[i] if i < len(names) else str(i)) for i in top)
        entropy, right = loss["scale"] * _entropies(p).sum(), loss["scale"] * p[top].sum()
        answers = {"loss": (entropy, "guessing by the shares of the classes")}
        answers["accuracy"] = right, f"always saying {said}"
    else:
        moments = reduce(Moments.merged, [Moments(each[0], *map(np.array, each[1:])) for each in counted])
        n, p, squares = moments.n, moments.mean, moments.squares / moments.n
        answers = {"loss": (squares.sum(), "always saying the mean")}
        if loss["kind"] == "labels":
            answer, is_binary = "always giving the same labels", np.allclose(squares, p * (1 - p), atol=1e-9)
            entropy, right = np.mean(_entropies(p) + _entropies(1 - p)), np.mean(np.maximum(p, 1 - p))
            answers = {"loss": (entropy, answer), "binary_accuracy": (right, answer)} if is_binary else {}
    for name, (value, answer) in answers.items():
        if name != "loss" or loss["has_loss"]:
            yield name, {"value": float(value), "answer": answer, "records": n}


def _entropies(p: Array) -> Array:
    return -p * np.log(np.where(p > 0, p, 1.0))


logger = logging.getLogger(__name__)

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


class Trainer:
    """Runs the nets of one worker.

    Parameters
    ----------
    channel : Channel
        Of the worker.
    job : JobConf
    nets : Nets
        With memory: what `build_nets` returned, allocated.
    params : WorkerParams
        Of the training net.
    step : int
        First step.
    window : mapping
        Metrics that the run which is continued had not reported, see `WorkerMetrics`.

    Attributes
    ----------
    net : NeuralNet
        The training net.
    metrics : WorkerMetrics
    """

    def __init__(
        self,
        channel: Channel,
        job: JobConf,
        nets: Nets,
        params: WorkerParams,
        step: int,
        window: Mapping[str, Any],
    ) -> None:
        self.address = channel.address
        self.nets = nets
        self.net = nets[Phase.TRAIN]
        self._job = job
        self._params = params
        self._timer = StepTimer(self.net.ops)
        self.metrics = WorkerMetrics(channel, job, nets, params, self._timer, step, window)
        self._learning = LearningFacts(nets, job, step)
        conf = job.train_one_batch
        algorithm = ALGORITHMS.find(conf.alg)
        self._algorithms = {net: algorithm(net, params.collect, params.update, conf) for net in nets.each()}
        self._running = self._algorithms[self.net]
        self.net.is_watched = job.debug
        if params.mirror is None and not job.debug:  # else each gradient is copied as soon as it is computed
            self._running.capture_steps()
        trains = step < job.train_steps
        self._readers = [layer for layer in self.net.layers if isinstance(layer, StoreInput)] if trains else []

    @property
    def layer(self) -> Layer | None:
        """The layer being computed: where an error happened."""
        return self._running.layer

    # -- records -----------------------------------------------------------------------------------------

    def read_ahead(self) -> None:
        """Open the records of the training net, and begin to read; does not wait."""
        for layer in self._readers:
            self._running.layer = layer
            layer.read_ahead()
        self._running.layer = None

    def wait_for_records(self) -> None:
        """Wait until the first records are there."""
        for layer in self._readers:
            layer.wait_for_batch()

    def open_stores(self) -> list[Store]:
        """Return the stores of all nets that are open."""
        layers = (layer for net in self.nets.each() for layer in net.layers)
        return [layer.store for layer in layers if isinstance(layer, StoreInput) and layer.store is not None]

    def remote_versions(self) -> dict[str, str]:
        """Return the versions of the open remote files of all nets by URL, see `Store.remote_versions`."""
        files = (file for store in self.open_stores() for file in store.remote_versions().items())
        return {redact(url): version for url, version in files}

    def position(self, step: int) -> dict[str, Any]:
        """Return a step, by phase and layer where the readers are, and what this worker has not reported yet."""
        # a pass over all records begins anew each time
        moving = [phase for phase in self.nets if phase not in self.nets.passes]
        cursors = {phase_name(phase): self.nets[phase].cursors() for phase in moving}
        window = self.metrics.window()
        return {"step": step, "cursors": cursors, "windows": {str(self.address.id): window} if window else {}}

    def states(self) -> list[LayerState]:
        """Return copies of what the layers of all nets keep from one batch to the next."""
        return take_states({phase_name(phase): net for phase, net in self.nets.items()})

    # -- batches -----------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Measure rates from now on, a value of ``time.perf_counter``."""
        self.metrics.begin(now)
        self._learning.begin()

    def train(self, step: int) -> None:
        """Train on one batch; report the metrics if they are due after this step."""
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
        """Run the net of a phase over some batches, or all records if None.

        Returns
        -------
        dict of str to (float, float)
            (sum, count) of each metric of the layers.
        PassMetrics
            Those of the job.
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
        """Run a net over some batches; return (sum, count) of each metric, see `NeuralNet.take_metrics`."""
        self._running = self._algorithms[net]
        net.context.step = step
        try:
            for _ in range(n_batches):
                net.cancellation.check()  # also where a worker has no layers
                self._running.test_one_batch(phase)
                metrics.add(net)
                self._learning.count(phase, net)
        finally:
            self.metrics.report_bad_records()
        return net.take_metrics(weight)

    def synchronize(self) -> None:
        """Wait for the device, and check the losses that are known only then."""
        self._timer.synchronize()
        self._running = self._algorithms[self.net]
        self._running.check_losses(wait=True)

    def collect_all(self) -> None:
        """Wait for the updates of all steps so far, and check the params that they have made."""
        self.synchronize()
        self._params.collect_all()
        self._running.check_params()

    # -- what is reported ----------------------------------------------------------------------------------

    def report_rest(self, n_steps: int) -> None:
        """Report the steps since the last report, so that the summary shows the metrics of the last step.

        Parameters
        ----------
        n_steps : int
            Steps done.
        """
        if self._job.disp_freq > 0 and n_steps > max(self.metrics.shown, self._job.disp_after):
            self._report(n_steps - 1)

    def _report(self, last: int) -> None:
        """Report the metrics of training since the last time; ``last`` is the step that was done last."""
        self.synchronize()
        self.metrics.report_training(last)
        if self._job.debug:
            self._params.collect_all()
            _log_layers(self.net, last)

    def summary(self, seconds: float) -> dict[str, Any]:
        """Return the part of this worker in the summary of the job, after ``seconds`` of training."""
        return {**self.metrics.summary(seconds), "learning": self._learning.facts()}


def group_rows(net: NeuralNet) -> int:
    """Return the number of rows of a batch of the whole worker group."""
    reader = next(layer for layer in net.all_layers if layer.traits.is_input)
    return round(reader.features[0].shape[0] * reader.site.batch_shard.count / net.context.weight)


class WorkerMetrics:
    """Measures one worker, rates, waits and bad records, and reports that and the metrics of its nets.

    Parameters
    ----------
    channel : Channel
        Of the worker.
    job : JobConf
    nets : Nets
    params : WorkerParams
    timer : StepTimer
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
        self._timed = step  # first step of those that `_since` and the waits are about
        self.bad_records = self._n_bad = 0
        self._reported: set[tuple[Any, ...]] = set()
        self._since, self._data_s, self._params_s, self._cores_s = time.perf_counter(), 0.0, 0.0, 0.0

    def begin(self, now: float) -> None:
        """Measure rates from now on, a value of ``time.perf_counter``, in the thread that trains."""
        self._since, self._cores_s = now, core_wait_s()

    def report(self, phase: Phase, step: int, totals: Totals, **more: float) -> None:
        """Report (sum, count) of metrics."""
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
        """Report the metrics of training since the last time; ``last`` is the step that was done last."""
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
        """Return the metrics of the steps that have not been reported, as plain values; empty if there are none."""
        metrics = self._net.metrics_state()
        return {"shown": self.shown, "metrics": metrics} if metrics else {}

    def report_bad_records(self) -> None:
        """Report each bad record since the last call, once if several layers read the same store."""
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
        """Return the duration of all steps so far, and of the waits for records and for params in them, in seconds."""
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


def _log_layers(net: NeuralNet, step: int) -> None:
    """Log a line for each layer of this worker after a training step.

    For an InnerProduct, for example::

        step 100, fc1 (64, 32): data 0.4312, grad 0.0001927; fc1.weight (32, 784): value 0.02831, grad 0.0004106

    The numbers are means of absolute values. Data and gradients are those of this step, params have its update. A layer
    that overwrites its source shows its own values there.
    """
    for layer in net.layers:
        parts = []
        for feature in layer.features:
            data = feature.data if feature.has_data else None
            parts.append(f"{feature.shape}: {_sizes(net.ops, data=data, grad=feature.grad)}")
        for param in layer.params if layer.site.prototype is None else ():
            value, grad = param.data if param.has_data else None, param.grad if param.has_grad else None
            parts.append(f"{param.name} {param.shape}: {_sizes(net.ops, value=value, grad=grad)}")
        # equal ones, for several readers, are shown once
        logger.info("step %d, %s %s", step, layer.name, "; ".join(dict.fromkeys(parts)))


def _sizes(ops: Ops, **arrays: Array | None) -> str:
    """Describe the mean absolute value of each array that is not None."""
    sizes = []
    for name, values in arrays.items():
        if values is not None:
            x = ops.to_host(values)
            with np.errstate(over="ignore", invalid="ignore"):
                mean = np.mean(np.abs(x, dtype=np.float32), dtype=np.float64) if x.size else 0.0
            sizes.append(f"{name} {mean:.4g}")
    return ", ".join(sizes) or "not computed"
