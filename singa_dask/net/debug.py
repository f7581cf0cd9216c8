"""Check what layers write, for ``debug: true`` and for `singa_dask.testing`.

A layer must overwrite its own arrays, and must not change other arrays. To check this, the layer's own arrays are
first filled with a number that no layer computes. If an array later contains this number, the layer has not written
to it; if it contains a slightly larger or smaller number, the layer has added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from singa_dask.conf import Phase
from singa_dask.errors import PartError
from singa_dask.layers import Layer
from singa_dask.layers.feature import on_host
from singa_dask.layers.forwarding import Forwarding
from singa_dask.net.replay import run_method
from singa_dask.ops.contract import Array

FILL = 2.0**60
Named = list[tuple[str, Array]]


def watch_forward(layer: Layer, phase: Phase) -> None:
    """Run `Layer.prepare` and `Layer.forward`, and check what they write.

    Raises
    ------
    PartError
        The layer does not write all of its outputs, or writes to its sources.
    """
    outputs = [
        (f"output {k}", feature.data)
        for k, feature in enumerate(layer.features)
        if feature.own_data is True and "data" in feature.consumed_as and not on_host(feature)
    ]
    kept = _source_data(layer)
    _fill(outputs)
    layer.prepare(phase)
    run_method(layer, phase, "forward")
    _check(layer, "forward", outputs, kept, "y.data[...] = values")


def watch_backward(layer: Layer, phase: Phase, backward: Callable[[Layer, Phase], None], adds: bool) -> None:
    """Run a layer backward, and check what it writes.

    Parameters
    ----------
    layer : Layer
    phase : Phase
    backward : callable
        Called with the layer and the phase, to run the layer backward.
    adds : bool
        Whether the gradients of params are added to the gradients of other copies of the layer.

    Raises
    ------
    PartError
        The layer does not overwrite its gradients, writes to its sources, or lacks a property that its class declares.
    """
    gradients = [] if adds else param_gradients(layer)
    if not isinstance(layer, Forwarding):
        of_outputs = [feature.grad for feature in layer.features]
        gradients += [
            (name, grad) for name, grad in _source_gradients(layer) if not any(grad is other for other in of_outputs)
        ]
    before = [_copy(layer, grad) for _, grad in param_gradients(layer)]
    kept = _source_data(layer)
    for k, feature in enumerate(layer.features if layer.speed.reads_gradients else ()):
        if feature.grad is not None and not layer.fused.relu:
            kept.append((f"the gradient of output {k}", feature.grad, _copy(layer, feature.grad)))
    _fill(gradients)
    backward(layer, phase)
    _check(layer, "backward", gradients, kept, "grad[...] = values")
    if not adds:
        check_overwritable(layer, phase)
    elif layer.speed.accumulates and layer.traits.steps != "recurrent":  # backward overwrites its buffers
        check_accumulates(layer, phase, before)


def check_accumulates(layer: Layer, phase: Phase, before: Sequence[Array]) -> None:
    """Check that a layer has added the gradients of its params to the earlier gradients, ``before``.

    To compare, the layer is run backward once more.
    """
    sums = [_copy(layer, grad) for _, grad in param_gradients(layer)]
    run_method(layer, phase, "backward")
    for (name, grad), total, earlier in zip(param_gradients(layer), sums, before, strict=True):
        wanted = earlier + _copy(layer, grad)
        if not np.allclose(total, wanted, rtol=0, atol=np.finfo(grad.dtype).eps ** 0.5 * np.abs(wanted).max(initial=0)):
            what = f"Speed(accumulates=True) is false: {name} is not added to its earlier values."
            raise PartError(f"{layer.conf.type}: {what} Add if phase.accumulates, or remove accumulates.")
        grad[...] = layer.ops.from_host(total.astype(grad.dtype))


def check_overwritable(layer: Layer, phase: Phase) -> None:
    """Check that a layer computes the same gradients after its ``overwritable`` outputs were overwritten."""
    outputs = [feature.data for feature in layer.features if feature.overwritable and feature.has_data]
    if not outputs:
        return
    gradients = param_gradients(layer) + _source_gradients(layer)
    wanted, data = ([_copy(layer, each) for each in arrays] for arrays in ([grad for _, grad in gradients], outputs))
    _fill([("", each) for each in outputs])
    run_method(layer, phase, "backward")
    for output, values in zip(outputs, data, strict=True):
        output[...] = layer.ops.from_host(values.astype(output.dtype))
    for (name, grad), values in zip(gradients, wanted, strict=True):
        if not np.array_equal(_copy(layer, grad), values, equal_nan=True):
            what = f"backward() reads an output that other layers may overwrite, for {name}."
            raise PartError(f"{layer.conf.type}: {what} Leave overwritable=True out of add_output.")


def param_gradients(layer: Layer) -> Named:
    """Return the gradients of a layer's params, with their names for messages."""
    return [(f"the gradient of param {param.name!r}", param.grad) for param in layer.params if param.has_grad]


def _source_gradients(layer: Layer) -> Named:
    named = zip(layer.conf.srclayers, layer.sources, strict=False)
    return [(f"the gradient of source {name!r}", source.grad) for name, source in named if source.grad is not None]


def _source_data(layer: Layer) -> list[tuple[str, Array, Array]]:
    """Return the data and labels of a layer's sources, as (name, array, copy).

    Data that the layer may overwrite is left out.
    """
    in_place = not all(feature.own_data for feature in layer.features)
    read: Named = []
    for name, source in zip(layer.conf.srclayers, layer.sources, strict=False):
        if source.has_data and not (in_place and source.overwritable):
            read.append((f"the data of source {name!r}", source.data))
        if source.records.labels is not None:
            read.append((f"the labels of source {name!r}", source.records.labels))
    return [(name, values, _copy(layer, values)) for name, values in read]


def _copy(layer: Layer, array: Array) -> Array:
    """Return a copy of an array in host memory, as float64."""
    return np.array(layer.ops.to_host(array), np.float64)


def _fill(arrays: Named) -> None:
    for _, array in arrays:
        array[...] = FILL


def _check(layer: Layer, method: str, own: Named, kept: list[tuple[str, Array, Array]], remedy: str) -> None:
    """Raise `PartError` if a layer did not overwrite its own arrays, or changed an array in ``kept``."""
    for name, data, values in kept:
        if not np.array_equal(_copy(layer, data), values, equal_nan=True):
            what = f"{method}() writes into {name}, which other layers read."
            raise PartError(f"{layer.conf.type}: {what} Write to outputs, or to memory from self.buffer().")
    for name, array in own:
        if (np.abs(_copy(layer, array)) > FILL / 1024).any():
            what = f"{method}() does not overwrite {name}: some of it is not written, or added to earlier values."
            raise PartError(f"{layer.conf.type}: {what} Write all of its values, {remedy}.")
