"""Copies: run layers backward, and sum the gradients over the copies of a layer in an unrolled net."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from singa_dask.conf import Phase
from singa_dask.layers import Layer, Param
from singa_dask.net.memory import Allocation
from singa_dask.net.replay import Run, run_method
from singa_dask.ops.contract import Array, Ops


class Copies:
    """Runs layers backward, and sums the gradients over the copies of each layer.

    In a net that is unrolled over time steps, a layer has a copy for each time step. All copies share its params.

    Attributes
    ----------
    before : dict of Layer to list of Layer
        For each layer that learns, the layers that must run backward first: the layers that read it, and the copy that
        runs before it in a backward pass.
    """

    def __init__(self, layers: Sequence[Layer], readers: Mapping[Layer, Sequence[Layer]]) -> None:
        self.before: dict[Layer, list[Layer]] = {}
        self._last: dict[str, Layer] = {}
        self._adding: set[Layer] = set()
        self._own_grads: dict[Param, Array] = {}
        for layer in reversed([layer for layer in layers if layer.learns]):
            earlier = [self._last[layer.conf_name]] if layer.conf_name in self._last else []
            self.before[layer] = [*readers[layer], *earlier]
            self._adding.update([layer] if earlier else [])
            self._last[layer.conf_name] = layer
        self._n_copies = Counter(layer.conf_name for layer in self.before)

    def is_last(self, layer: Layer) -> bool:
        """Return whether the backward pass runs this copy of a layer after all its other copies."""
        return self._last.get(layer.conf_name, layer) is layer

    def is_only(self, layer: Layer) -> bool:
        """Return whether a layer has no other copies."""
        return self._n_copies[layer.conf_name] == 1

    def adds(self, layer: Layer) -> bool:
        """Return whether the gradients of this copy are added to the gradients of copies that ran before it."""
        return layer in self._adding

    def memory(self, ops: Ops) -> Iterator[tuple[Layer, Allocation]]:
        """Yield the memory for the gradients of a single copy.

        Only layers whose `backward` cannot add to earlier gradients need this memory.
        """
        for layer in self._adding:
            for param in () if layer.speed.accumulates else layer.params:
                if param.needs_grad:
                    make = partial(self._allocate, param, ops)
                    yield layer, Allocation((param, "own"), param.shape, param.dtype, make)

    def _allocate(self, param: Param, ops: Ops) -> None:
        if param not in self._own_grads:
            self._own_grads[param] = ops.zeros(param.shape, param.dtype)

    def allocate(self, ops: Ops) -> None:
        """Allocate the memory that `memory` yields."""
        for _, memory in self.memory(ops):
            memory.allocate()

    def backward(self, layer: Layer, phase: Phase, run: Run = run_method) -> None:
        """Run one copy of a layer backward, and add its gradients to the gradients of earlier copies."""
        if layer not in self._adding:
            for param in layer.params:
                if param.view is not None:  # layers add to different parts of this memory, so clear all of it first
                    layer.ops.clear(param.memory)
            run(layer, phase, "backward")
        elif layer.speed.accumulates:
            run(layer, phase | Phase.AGGREGATE_GRADIENT, "backward")
        else:
            self._add_own_gradients(layer, phase, run)
        n_copies = self._n_copies[layer.conf_name]
        for param in layer.params if n_copies > 1 and self.is_last(layer) else ():
            if param.running_statistic:
                layer.ops.multiply(param.grad, 1 / n_copies, out=param.grad)

    def _add_own_gradients(self, layer: Layer, phase: Phase, run: Run) -> None:
        """Compute the gradients of a layer's params in separate memory, then add them to earlier gradients."""
        params = [param for param in layer.params if param.has_grad]
        sums = [param.swap_grad(self._own_grads[param]) for param in params]
        try:
            run(layer, phase, "backward")
        finally:
            for param, total in zip(params, sums, strict=True):
                param.swap_grad(total)
        for param in params:
            layer.ops.add(param.grad, self._own_grads[param], out=param.grad)
