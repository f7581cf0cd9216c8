"""Build the nets of inference, only as far as needed, and load the values of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.registry import suggest
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.nets import build_net

__all__ = ["build", "fill"]


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


def fill(net: NeuralNet, initial: InitialValues) -> int:
    """Set the params of a net to the values of checkpoints; return the highest version of a param.

    Raises
    ------
    CheckpointError
        Values of a param are missing, or have another shape.
    """
    owners = {param.owner.name: param.owner for layer in net.layers for param in layer.params}
    initial.check(((name, owner.shape) for name, owner in owners.items()), complete=True)
    versions = [0]
    for name, owner in owners.items():
        values, version = initial.get(name, owner.shape)
        owner.data = net.ops.empty(owner.shape, owner.dtype)
        net.ops.copy(np.ascontiguousarray(values, owner.dtype), out=owner.data)
        versions.append(version)
    return max(versions)
