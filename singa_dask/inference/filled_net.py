"""FilledNet: a net with the values of checkpoints, computed batch by batch."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError, SingaError, UnitError
from singa_dask.inference.bound_net import BoundNet, copied
from singa_dask.layers.metrics import Totals
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.nets import build_net
from singa_dask.shown import plural
from singa_dask.training import ALGORITHMS, BP, Algorithm
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
    bound : BoundNet or None
        Computes the same outputs faster. `SizedNets` sets it after several passes, if possible.
    n_passes : int
        Number of passes so far, until ``bound`` is set.
    n_threads : int
        Number of threads that compute a batch.

    Raises
    ------
    CheckpointError
        See `fill`.
    NumericError
        A param is not finite.
    """

    bound: BoundNet | None = None
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

    def bind(self, phase: Phase, layers: Sequence[str]) -> None:
        """Set ``bound`` for the outputs of ``layers``, if the net can be bound."""
        algorithm = self._algorithm
        # other algorithms may not compute layers one after the other
        if isinstance(algorithm, BP) and not algorithm.has_own_forward:
            self.bound = BoundNet.of(self.net, phase, layers)


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
    arrays: Arrays = {"data": copied(values)}
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
    """Load the user's modules. If ``sources`` is empty, the modules that are loaded now stay loaded."""
    if sources:
        modules.load(sources, REGISTRIES.values())


def using_modules(sources: Sequence[modules.Source]) -> AbstractContextManager[None]:
    """Load the user's modules as `load_modules` does, and keep them loaded until the context ends."""
    return modules.using(sources, REGISTRIES.values(), "a prediction or test") if sources else nullcontext()


@contextmanager
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
