"""Build the nets of inference, only as far as needed, and load the values of checkpoints."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data import Arrays
from singa_dask.errors import ConfigError, SingaError, UnitError
from singa_dask.layers.metrics import Totals
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops
from singa_dask.registry import suggest
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.nets import build_net
from singa_dask.training import ALGORITHMS, Algorithm
from singa_dask.training.pass_metrics import State

SharedValues = dict[str, tuple[Array, int]]
"""Values and version of params, by name."""


def build(
    job: JobConf,
    phase: Phase,
    layers: Sequence[str] = (),
    labels: bool = True,
    topk: int = 0,
    ops: Ops | None = None,
) -> NeuralNet:
    """Build the net of a phase, shapes only; if layers are named, only those that they need.

    With ``labels`` all input layers stay. Layers that learn without a loss stay together. Each layer must have at least
    ``topk`` values. ``ops`` are the kernels of the net, if it is to be computed.

    Raises
    ------
    ConfigError
        All errors in wiring and shapes; or a layer does not exist.
    """
    net = build_net(job, phase, ops)
    known = {layer.conf_name: layer for layer in net.layers}
    for name in layers:
        if name not in known:
            raise ConfigError(f"layer {name!r} is not in the net of this phase. {suggest(name, known)}")
        if len(known[name].features) != 1:
            raise ConfigError(f"layer {name!r} has {len(known[name].features)} outputs, expected one.")
        if topk > known[name].features[0].size:
            raise ConfigError(f"layer {name!r} has {known[name].features[0].size} classes, expected {topk} at least.")
    if layers and not any(layer.traits.learns_without_loss for layer in net.layers):
        home = {feature: layer for layer in net.layers for feature in layer.features}
        waiting = [layer for layer in net.layers if layer.conf_name in layers]
        needed = {layer for layer in net.layers if layer.traits.is_input and labels}
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
    """Set the params of a net to the values of checkpoints; return the highest version of a param.

    ``shared`` are the values of params in other nets of the same checkpoints, which this net uses too.

    Raises
    ------
    CheckpointError
        Values of a param are missing, or have another shape.
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


def prepare_net(net: NeuralNet, job: JobConf, initial: InitialValues, shared: SharedValues | None = None) -> Algorithm:
    """Give a net memory and the values of checkpoints; return the algorithm that computes it.

    Raises
    ------
    CheckpointError
        See `fill`.
    NumericError
        A param is not finite.
    """
    net.allocate()
    # the random numbers are those of a test at the step of the checkpoint
    net.context.step = fill(net, initial, shared)
    conf = job.train_one_batch
    algorithm: Algorithm = ALGORITHMS.find(conf.alg)(net, _no_server, _no_server, conf)
    algorithm.check_params()
    return algorithm


def _no_server(*_: object) -> None:
    """Take the place of the exchange with servers."""


def keep_outputs(net: NeuralNet, name: str, labels: bool, topk: int, label_layer: str = "") -> Arrays:
    """Copy the values of a layer for a batch, of shape (records, time steps, ...) if there are several steps.

    Labels are those of ``label_layer``, or else of the first input layer that has some.
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
    arrays: Arrays = {"data": np.array(values.reshape(len(values), *(values.shape[1:] or (1,))), np.float32, order="C")}
    inputs = [layer for layer in net.layers if layer.traits.is_input and labels]
    given = [layer.features[0].labels for layer in sorted(inputs, key=lambda each: each.conf_name != label_layer)]
    found = next((each for each in given if each is not None and np.shape(each) == (len(values),)), None)
    if found is not None:
        arrays["label"] = np.array(found, np.int32)
    return arrays


def _top(scores: Any, n: int) -> Any:
    """Return (index, value) of the ``n`` highest scores of each record; of equal ones the higher index first."""
    indices = np.argsort(scores, axis=-1, kind="stable")[..., ::-1][..., :n]
    pairs = np.stack([indices.astype(np.float32), np.take_along_axis(scores, indices, -1)], axis=-1)
    return pairs.reshape(len(scores), -1)


class Measured(NamedTuple):
    """What some batches have measured: metrics of each batch, and the state of a `PassMetrics` of all of them."""

    metrics: list[Totals]
    state: State


def load_modules(sources: Sequence[modules.Source]) -> None:
    """Load the user's modules; if there are none, keep those that are loaded."""
    if sources:
        modules.load(sources, REGISTRIES.values())


@contextlib.contextmanager
def locate_errors(where: Callable[[], str]) -> Iterator[None]:
    """Turn other exceptions into a `UnitError` that says where they happened, in the user's code if it was there."""
    try:
        yield
    except Exception as error:
        found = modules.blame(error)
        if found is not None:
            raise UnitError(f"{found.place}: {found.text} ({where()})\n{found.traceback.rstrip()}") from None
        if isinstance(error, SingaError):
            raise
        shown = traceback.format_exc().rstrip()
        raise UnitError(f"{where()}: {type(error).__name__}: {error}\n{shown}") from None
