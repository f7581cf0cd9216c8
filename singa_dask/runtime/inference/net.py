"""Build the nets of inference, only as far as needed, and load the values of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.class_names import ClassNames
from singa_dask.errors import ConfigError
from singa_dask.layers import Layer, StoreInput
from singa_dask.layers.output import ArgSort
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array, Ops
from singa_dask.registry import suggest
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.nets import build_net
from singa_dask.training import ALGORITHMS, Algorithm

__all__ = ["SharedValues", "build", "class_names_of", "fill", "is_sequential", "prepare_net"]

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


def is_sequential(layer: Layer) -> bool:
    """Return whether a layer needs all batches in order, as it keeps state or writes a file."""
    if layer.traits.is_input:
        return not isinstance(layer, StoreInput)
    keeps = layer.block is not None and getattr(layer.conf.given_block(layer.block), "carry_state", False)
    return keeps or (layer.traits.is_output and not isinstance(layer, ArgSort))


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


def class_names_of(initial: InitialValues) -> ClassNames:
    """Return the class names and facts of tables in checkpoints."""
    names = ClassNames()
    names.by_layer, names.tables = initial.class_names(), initial.tables()
    return names


def prepare_net(net: NeuralNet, job: JobConf, initial: InitialValues, shared: SharedValues | None = None) -> Algorithm:
    """Give a net memory and the values of checkpoints; return the algorithm that computes it.

    Raises
    ------
    CheckpointError
        See `fill`.
    NumericError
        A param is not finite.
    """
    for each in net.layers:
        each.allocate()
    # the random numbers are those of a test at the step of the checkpoint
    net.context.step = fill(net, initial, shared)
    conf = job.train_one_batch
    algorithm: Algorithm = ALGORITHMS.find(conf.alg)(net, _no_server, _no_server, conf)
    algorithm.check_params()
    return algorithm


def _no_server(*_: object) -> None:
    """Take the place of the exchange with servers."""
