"""Nets with the values of checkpoints, computed batch by batch."""

from __future__ import annotations

import contextlib
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, SingaError, UnitError
from singa_dask.inputs import StoreInput
from singa_dask.inputs.writers import Writer
from singa_dask.layers import Feature, Layer
from singa_dask.layers.metrics import Totals
from singa_dask.net import NeuralNet
from singa_dask.net.replay import is_without_blas
from singa_dask.ops.contract import Array, Ops
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.devices import explain_memory_errors
from singa_dask.runtime.planning.machine import ThreadPools, n_threads
from singa_dask.runtime.planning.nets import build_net, with_batchsize
from singa_dask.runtime.planning.whole_pass import is_sequential
from singa_dask.shown import plural
from singa_dask.training import ALGORITHMS, Algorithm
from singa_dask.training.pass_metrics import PassMetrics, State
from singa_dask.wording import suggest

SharedValues = dict[str, tuple[Array, int]]
"""Values and version of each param, by name."""


def build(
    job: JobConf,
    phase: Phase,
    layers: Sequence[str] = (),
    labels: bool = True,
    topk: int = 0,
    ops: Ops | None = None,
) -> NeuralNet:
    """Build the net of a phase, without memory.

    Parameters
    ----------
    job : JobConf
    phase : Phase
    layers : sequence of str
        If not empty, build only these layers and the layers that they depend on. A net with layers that learn without a
        loss is always built completely.
    labels : bool
        Whether to build also the input layers that ``layers`` do not depend on.
    topk : int
        Minimum number of values that each of ``layers`` must have.
    ops : Ops, optional
        Kernels of the device. Needed if the net will compute.

    Raises
    ------
    ConfigError
        Wiring or shapes are wrong, a layer does not exist, or it has fewer than ``topk`` values.
    """
    net = build_net(job, phase, ops)
    known = {layer.conf_name: layer for layer in net.layers}
    for name in layers:
        if name not in known:
            raise ConfigError(f"layer {name!r} is not in the net of this phase. {suggest(name, known)}")
        if len(known[name].features) != 1:
            raise ConfigError(f"layer {name!r} has {len(known[name].features)} outputs, expected one.")
        if topk > known[name].features[0].size:
            n = known[name].features[0].size
            raise ConfigError(f"--topk {topk}: layer {name!r} has {plural(n, 'value')}. Expected at most {n}.")
    if layers and not any(layer.traits.role == "unsupervised" for layer in net.layers):
        home = {feature: layer for layer in net.layers for feature in layer.features}
        waiting = [layer for layer in net.layers if layer.conf_name in layers]
        needed = {layer for layer in net.layers if layer.traits.role == "input" and labels}
        while waiting:
            layer = waiting.pop()
            if layer not in needed:
                needed.add(layer)
                waiting += [home[source] for source in layer.sources]
        net.leave_out(layer for layer in net.layers if layer not in needed)
    for layer in net.layers:
        if layer.conf_name in layers:
            layer.features[0].consumed_as.add("data")
    return net


def fill(net: NeuralNet, initial: InitialValues, shared: SharedValues | None = None) -> int:
    """Set the params of a net to values of checkpoints, and return the highest version of a param.

    Nets that are filled with the same ``shared`` share the memory of their values.

    Raises
    ------
    CheckpointError
        The checkpoints lack the values of a param, or have them in another shape.
    """
    known = {} if shared is None else shared
    owners = {param.owner.name: param.owner for layer in net.layers for param in layer.params}
    missing = {name: owner for name, owner in owners.items() if name not in known}
    if missing:
        initial.check(((name, owner.shape) for name, owner in missing.items()), complete=True)
    for name, owner in missing.items():
        values, version = initial.get(name, owner.shape)
        data = net.ops.empty(owner.shape, owner.dtype)
        net.ops.copy(np.ascontiguousarray(values, owner.dtype), out=data)
        known[name] = data, version
    for name, owner in owners.items():
        owner.data = known[name][0]
    return max((known[name][1] for name in owners), default=0)


# maximum number of records, and approximate bytes of features, in a batch of a pass over all records
MAX_ROWS = 4096
BATCH_BYTES = 8 << 20


def rows_of_pass(net: NeuralNet, batchsize: int) -> int:
    """Return the number of records in a batch of a pass that uses each record once.

    Small nets get more records than the job's ``batchsize``, because each batch has a fixed cost.
    """
    record_bytes = 4 * sum(feature.size for layer in net.layers for feature in layer.features)
    return max(batchsize, min(MAX_ROWS, BATCH_BYTES // max(1, record_bytes)))


class FilledNet:
    """A net with memory and the values of checkpoints. It computes one batch after the other.

    Its input layers read the records themselves, or are fed with the records of each batch.

    Parameters
    ----------
    net : NeuralNet
        A net from `build`.
    shared : SharedValues, optional
        See `fill`.

    Attributes
    ----------
    bound : _BoundNet or None
        Computes the same outputs faster. Set after several passes, if possible.
    n_passes : int
        Number of passes before that.
    n_threads : int
        Number of threads that compute a batch.

    Raises
    ------
    CheckpointError
        See `fill`.
    NumericError
        A param is not finite.
    """

    bound: _BoundNet | None = None
    n_passes = 0
    n_threads = 1

    def __init__(
        self, net: NeuralNet, job: JobConf, initial: InitialValues, shared: SharedValues | None = None
    ) -> None:
        self.net = net
        net.allocate()
        # set the step, to draw the same random numbers as a test at this step
        net.context.step = fill(net, initial, shared)
        conf = job.train_one_batch
        self._algorithm: Algorithm = ALGORITHMS.find(conf.alg)(net, conf=conf)
        self._algorithm.check_params()

    def compute(self, phase: Phase, of_pass: PassMetrics | None) -> None:
        """Compute the next batch, and add its metrics to ``of_pass``, the metrics over all batches."""
        with locate_errors(lambda: f"layer {self._algorithm.layer.name if self._algorithm.layer else '?'}"):
            self._algorithm.test_one_batch(phase)
        if of_pass is not None:
            of_pass.add(self.net)


class _BoundNet:
    """A net for one batch size whose outputs are computed without the code of its layers, where possible.

    The results have the same bits as the results of `FilledNet.compute`.
    """

    def __init__(self, net: NeuralNet, calls: Sequence[Callable[[], Any]], outputs: Mapping[str, Feature]) -> None:
        self._ops, self._calls, self._outputs = net.ops, calls, outputs
        self._inputs = [layer for layer in net.layers if isinstance(layer, StoreInput)]
        self._conditions = net.ops.conditions()
        self.needs_blas = not all(map(is_without_blas, calls))

    @classmethod
    def of(cls, net: NeuralNet, phase: Phase, layers: Sequence[str]) -> _BoundNet | None:
        """Return the bound net for the outputs of ``layers``; None if the net cannot be bound.

        Input layers with a ``forward`` of their own, several time steps, and state prevent it.
        """
        inputs = [layer for layer in net.layers if layer.traits.role == "input"]
        is_plain = all(type(layer).forward is StoreInput.forward for layer in inputs)
        wanted = [layer for layer in net.layers if layer.conf_name in layers]
        has_steps = any(layer.site.n_steps > 1 for layer in net.layers) or len(wanted) > len(layers)
        if net.ops.device != "cpu" or not is_plain or has_steps or net.context.states:
            return None
        calls = net.bind_forward(phase | Phase.FORWARD)
        outputs = {layer.conf_name: layer.features[0] for layer in wanted}
        return None if calls is None else cls(net, calls, outputs)

    def compute(self, arrays: Mapping[str, Arrays]) -> dict[str, Arrays] | None:
        """Return the outputs as `SizedNets.compute` does; None if threads or the process have changed."""
        if self._ops.conditions() != self._conditions:
            return None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for layer in self._inputs:
                layer.write(arrays[layer.conf_name])
            for call in self._calls:
                call()
            return {name: {"data": _copied(feature.data)} for name, feature in self._outputs.items()}


def _copied(values: Array) -> Array:
    """Return a copy as float32 with a record in each row."""
    return np.array(values.reshape(len(values), *(values.shape[1:] or (1,))), np.float32, order="C")


def keep_outputs(net: NeuralNet, name: str, labels: bool, topk: int, label_layer: str = "") -> Arrays:
    """Copy the outputs of a layer for a batch: (records, ...), or (records, time steps, ...).

    Parameters
    ----------
    net : NeuralNet
    name : str
        Name of the layer.
    labels : bool
        Whether to copy the labels, too.
    topk : int
        Number of highest values to copy, as pairs of index and value; 0 copies all values.
    label_layer : str
        Input layer with the labels. By default the first input layer that has labels.
    """
    pieces = []
    for layer in net.layers:
        if layer.conf_name == name:
            feature = layer.features[0]
            values = np.asarray(layer.ops.to_host(feature.data), np.float32)
            pieces.append(values.reshape(layer.site.n_steps, -1, *feature.shape[1:]))
    steps = np.concatenate(pieces)
    values = steps[0] if len(steps) == 1 else steps.swapaxes(0, 1)
    if topk:
        values = _top(values.reshape(len(values), len(steps), -1), topk)
    arrays: Arrays = {"data": _copied(values)}
    inputs = [layer for layer in net.layers if layer.traits.role == "input" and labels]
    candidates = [
        layer.features[0].records.labels for layer in sorted(inputs, key=lambda each: each.conf_name != label_layer)
    ]
    own_labels = next((each for each in candidates if each is not None and np.shape(each) == (len(values),)), None)
    if own_labels is not None:
        arrays["label"] = np.array(own_labels, np.int32)
    return arrays


def _top(scores: Any, n: int) -> Any:
    """Return (index, value) of the ``n`` highest scores of each record.

    Among equal scores, the higher index comes first.
    """
    indices = np.argsort(scores, axis=-1, kind="stable")[..., ::-1][..., :n]
    pairs = np.stack([indices.astype(np.float32), np.take_along_axis(scores, indices, -1)], axis=-1)
    return pairs.reshape(len(scores), -1)


class MetricSums(NamedTuple):
    """Metrics of several batches: sums for each batch, and the state of a `PassMetrics` over all.

    ``n_left_out`` is the number of records that were skipped because of missing values.
    """

    metrics: list[Totals]
    state: State
    n_left_out: int = 0


def load_modules(sources: Sequence[modules.Source]) -> None:
    """Load the user's modules. If ``sources`` is empty, modules that are already loaded stay loaded."""
    if sources:
        modules.load(sources, REGISTRIES.values())


@contextlib.contextmanager
def locate_errors(where: Callable[[], str]) -> Iterator[None]:
    """Return a context that turns an exception other than a `SingaError` into a `UnitError`.

    The error message has the line in the user's code, if there is one, and the result of ``where``.
    """
    try:
        yield
    except Exception as error:
        blamed = modules.blame(error)
        if blamed is not None:
            raise UnitError(f"{blamed.place}: {blamed.text} ({where()})\n{blamed.traceback.rstrip()}") from None
        if isinstance(error, SingaError):
            raise
        trace = traceback.format_exc().rstrip()
        raise UnitError(f"{where()}: {type(error).__name__}: {error}\n{trace}") from None


# number of passes after which a net of one batch size is bound; its kernels are captured by then
PASSES_BEFORE_BOUND = 6
# number of multiplications below which waking up other threads takes longer than computing
SMALL = 1 << 17
# maximum number of nets that are kept: each batch size needs its own net, e.g. the last batch of an array
MAX_SIZES = 8


@dataclass
class LoadedValues:
    """Values of a checkpoint for several nets: their source, kernels, and the values read so far."""

    initial: InitialValues
    ops: Ops
    shared: SharedValues = field(default_factory=dict)

    @cached_property
    def knowledge(self) -> TrainingKnowledge:
        """Knowledge of the training data in the checkpoint."""
        return TrainingKnowledge(self.initial.learned_to_predict())


class SizedNets:
    """The net of a phase with the values of a checkpoint, computed on records in memory. Not thread-safe.

    It keeps a net for each of the last few batch sizes. All these nets share their values.

    Parameters
    ----------
    job : JobConf
        A job from `inference_job`.
    layers : sequence of str
        Layers to compute; the layers that they depend on are computed, too. If empty, all layers except layers that
        write files.

    Attributes
    ----------
    shapes : NeuralNet
        A net without memory, for its shapes.
    inputs : dict of str to StoreInput
        The input layers of ``shapes``, by name.
    batchsize : int
        Number of records in a batch of the job.
    rows : int
        Number of records in a batch of `batches`.
    sequential : str
        Name of a layer that needs all batches in order; empty if no layer does.

    Raises
    ------
    ConfigError
        The net cannot be built, or an input layer reads no store.
    """

    def __init__(self, job: JobConf, phase: Phase, loaded: LoadedValues, layers: Sequence[str] = ()) -> None:
        self._job, self._phase, self._loaded, self._layers = job, phase, loaded, tuple(layers)
        self._sized: OrderedDict[int, FilledNet] = OrderedDict()
        self._pools, self._n_threads = ThreadPools(), n_threads(job, 1)
        self.shapes = self._build(job)
        self.shapes.context.knowledge = loaded.knowledge
        inputs = [layer for layer in self.shapes.layers if layer.traits.role == "input"]
        self.inputs = {layer.conf_name: layer for layer in inputs if isinstance(layer, StoreInput)}
        if len(self.inputs) < len(inputs):
            others = [f"{each.conf_name!r}, a {each.conf.type}" for each in inputs if not isinstance(each, StoreInput)]
            found = ", ".join(others) or "copies of an input layer"
            raise ConfigError(f"the net reads {found}. Expected layers that read stores, to feed them with arrays.")
        sizes = {layer.plan.batch_size for layer in self.inputs.values()}
        if len(sizes) != 1:
            raise ConfigError(f"the input layers have batches of {sorted(sizes)} records. Expected one size.")
        self.batchsize = sizes.pop()
        self.sequential = next((layer.conf_name for layer in self.shapes.layers if is_sequential(layer)), "")
        self.rows = self.batchsize if self.sequential else rows_of_pass(self.shapes, self.batchsize)

    def layer(self, name: str) -> Layer:
        """Return a layer, to read its shapes. In an unrolled net, return one of the layer's copies."""
        return next(each for each in self.shapes.layers if each.conf_name == name)

    def batches(self, n: int) -> Iterator[tuple[int, int]]:
        """Yield each batch of ``n`` records as a range, (first, stop).

        Raises
        ------
        ConfigError
            A layer needs batches of full size, and the last batch has fewer records.
        """
        if self.sequential and n % self.batchsize:
            raise ConfigError(
                f"layer {self.sequential!r} takes batches of {self.batchsize} only, and there are {n} records."
            )
        return ((first, min(first + self.rows, n)) for first in range(0, n, self.rows))

    def compute(self, arrays: Mapping[str, Arrays], n: int, first: int) -> dict[str, Arrays]:
        """Compute a batch, and return the outputs of the layers by name.

        Parameters
        ----------
        arrays : mapping of str to dict of ndarray
            Fields of the records, by the name of the input layer.
        n : int
            Number of records in the batch.
        first : int
            Index of the first record; 0 resets the state of layers.
        """
        ready = self._net(n)
        if ready.bound is not None:
            with self._pools.limit(ready.n_threads, ready.bound.needs_blas):
                outputs = ready.bound.compute(arrays)
            if outputs is not None:
                return outputs
        with self._computed(arrays, n, first, None) as net:
            outputs = {name: keep_outputs(net, name, False, 0) for name in self._layers}
            ready.n_passes += 1
            if ready.n_passes == PASSES_BEFORE_BOUND:
                ready.bound = _BoundNet.of(net, self._phase, self._layers)
            return outputs

    def measure(self, arrays: Mapping[str, Arrays], n: int, first: int, of_pass: PassMetrics) -> Totals:
        """Compute a batch as `compute` does, add its metrics to ``of_pass``, and return them."""
        with self._computed(arrays, n, first, of_pass) as net:
            return net.take_metrics(n / self.batchsize)

    @contextmanager
    def _computed(
        self, arrays: Mapping[str, Arrays], n: int, first: int, of_pass: PassMetrics | None
    ) -> Iterator[NeuralNet]:
        ready = self._net(n)
        with self._computing(ready.net, ready.n_threads):
            if not first:
                ready.net.context.states.clear()
            for layer in ready.net.layers:
                if isinstance(layer, StoreInput):
                    layer.feed(arrays[layer.conf_name], first)
            ready.compute(self._phase, of_pass)
            yield ready.net

    def pass_metrics(self, names: Sequence[str] | None = None) -> PassMetrics:
        """Return a new `PassMetrics` for a pass over all records.

        It has the metrics ``names``; by default, the metrics that the job sets.
        """
        return PassMetrics(self.shapes, self._job.metrics if names is None else names)

    def _net(self, n: int) -> FilledNet:
        """Return the net for batches of ``n`` records."""
        if n not in self._sized:
            if len(self._sized) == MAX_SIZES:
                _, oldest = self._sized.popitem(last=False)
                oldest.net.close()
            self._sized[n] = self._make(n)
        self._sized.move_to_end(n)
        return self._sized[n]

    def _make(self, n: int) -> FilledNet:
        net = self._build(with_batchsize(self._job, n), self._loaded.ops)
        net.context.knowledge = self._loaded.knowledge
        with self._computing(net, self._n_threads), locate_errors(lambda: "the net"):
            for layer in net.layers:
                if isinstance(layer, StoreInput):
                    layer.read_statistics()
            ready = FilledNet(net, self._job, self._loaded.initial, self._loaded.shared)
        ready.n_threads = 1 if _is_small(net, n) else self._n_threads
        self._loaded.initial.release()
        # find the thread pools again, because loading a layer may have loaded a library with its own pool
        self._pools = ThreadPools()
        return ready

    def _build(self, job: JobConf, ops: Ops | None = None) -> NeuralNet:
        net = build(job, self._phase, self._layers, labels=not self._layers, ops=ops)
        net.leave_out([layer for layer in net.layers if isinstance(layer, Writer)])
        return net

    @contextmanager
    def _computing(self, net: NeuralNet, n_threads: int) -> Iterator[None]:
        limits, ops = self._pools.limit(n_threads), self._loaded.ops
        with limits, explain_memory_errors(lambda: [net]), ops.activate():
            yield


def _is_small(net: NeuralNet, n: int) -> bool:
    """Return whether a batch of ``n`` records is computed faster by one thread than by several."""
    is_flat = all(len(feature.shape) <= 2 for layer in net.layers for feature in layer.features)
    return is_flat and n * sum(param.size for param in net.params) < SMALL
