"""BoundNet: a net for one batch size whose kernels are called directly, without the code of layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.conf import Phase
from singa_dask.data.types import Arrays
from singa_dask.inputs import StoreInput
from singa_dask.layers import Feature
from singa_dask.net import NeuralNet
from singa_dask.net.replay import is_without_blas
from singa_dask.ops.contract import Array


class BoundNet:
    """A net for one batch size whose outputs are computed without the code of its layers, where possible.

    The results have the same bits as the results of `FilledNet.compute`.
    """

    def __init__(self, net: NeuralNet, calls: Sequence[Callable[[], Any]], outputs: Mapping[str, Feature]) -> None:
        self._ops, self._calls, self._outputs = net.ops, calls, outputs
        self._inputs = [layer for layer in net.layers if isinstance(layer, StoreInput)]
        self._conditions = net.ops.conditions()
        self.needs_blas = not all(map(is_without_blas, calls))

    @classmethod
    def of(cls, net: NeuralNet, phase: Phase, layers: Sequence[str]) -> BoundNet | None:
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
        """Return the outputs as `SizedNets.compute` does; None if the threads or the process have changed."""
        if self._ops.conditions() != self._conditions:
            return None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for layer in self._inputs:
                layer.write(arrays[layer.conf_name])
            for call in self._calls:
                call()
            return {name: {"data": copied(feature.data)} for name, feature in self._outputs.items()}


def copied(values: Array) -> Array:
    """Return a copy as float32 with a record in each row."""
    return np.array(values.reshape(len(values), *(values.shape[1:] or (1,))), np.float32, order="C")
