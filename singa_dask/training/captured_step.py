"""CapturedStep: a training step whose kernels are captured as a CUDA graph and launched together."""

from __future__ import annotations

import logging
from collections.abc import Callable

from singa_dask.layers import Feature
from singa_dask.layers.base import key_at
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import CapturedKernels

logger = logging.getLogger(__name__)

# Number of steps before the first capture. These steps compile kernels and allocate scratch memory, which cannot be
# captured.
FIRST_STEPS = 2
# Maximum number of captures. If more are needed, memory addresses differ from step to step, and steps run uncaptured.
MAX_CAPTURES = 8


class CapturedStep:
    """A training step in two parts: layers that run on the host, and kernels that a GPU replays.

    Attributes
    ----------
    readers : list of Layer
        Layers that run on the host. In each step, they run before `layers`.
    layers : list of Layer
        Layers whose kernels are replayed.
    n_captures : int
        Number of times that kernels were captured.
    """

    def __init__(self, net: NeuralNet) -> None:
        self.net = net
        self.readers = [layer for layer in net.layers if not layer.speed.capturable]
        self.layers = [layer for layer in net.layers if layer.speed.capturable]
        self._on_host = [layer for layer in net.layers if layer in self.readers or layer.speed.reads_on_host]
        self._read = [feature for layer in self._on_host for feature in layer.features]
        self._graph: CapturedKernels | None = None
        self._counts: list[dict[str, float]] = []
        self._addresses: list[int] = []
        self._n_steps = self.n_captures = 0
        self._n_grown = net.ops.n_grown
        self._possible = net.ops.supports_capture and not net.is_partitioned and self._readers_come_first()

    def _readers_come_first(self) -> bool:
        """Return whether the layers on the host do not depend on kernels, and have no params to train."""
        first = set(self.readers)
        independent = all(first.issuperset(self.net.sources[layer]) for layer in self._on_host)
        return independent and not any(layer.learns for layer in self.readers)

    def should_replay(self) -> bool:
        """Count a step, and return whether `run` should compute it.

        The result is False for the first step after scratch memory has grown. That step has to run uncaptured, to
        update the tables of addresses that kernels keep on the device.
        """
        self._n_steps += 1
        has_grown, self._n_grown = self._n_grown != self.net.ops.n_grown, self.net.ops.n_grown
        return self._possible and self._n_steps > FIRST_STEPS and not has_grown

    def run(self, compute: Callable[[], None]) -> None:
        """Replay the kernels of ``compute``. If there is no valid CUDA graph, capture the kernels first.

        Parameters
        ----------
        compute : callable
            Runs `layers` forward and backward. Called to capture the kernels, and in each step if they cannot be
            captured.
        """
        addresses = [address for feature in self._read for address in self._addresses_of(feature)]
        if self._graph is None or not self._graph.is_valid or addresses != self._addresses:
            self._addresses = addresses
            self._capture(compute)
            if self._graph is None:
                compute()
                return
        else:
            for layer, more in zip(self.layers, self._counts, strict=True):
                layer.metrics.count(more)
        context = self.net.context
        self._graph.replay(lambda key: key_at(key, context.step))

    def _addresses_of(self, feature: Feature) -> list[int]:
        """Return the host addresses from which kernels read the output of a layer."""
        data = feature.data if feature.has_data else None
        return [self.net.ops.address(x) for x in (data, feature.records.labels, feature.one_hot_index)]

    def _capture(self, compute: Callable[[], None]) -> None:
        before = [dict(layer.metrics.counts) for layer in self.layers]
        try:
            self._graph = self.net.ops.capture(compute)
            self.n_captures += 1
            self._possible = self.n_captures < MAX_CAPTURES
        except Exception as error:
            # a step that fails during capture can still run uncaptured
            logger.warning("steps cannot be captured and run uncaptured: %s", error)
            self._graph, self._possible = None, False
        self._counts = []
        for layer, counts in zip(self.layers, before, strict=True):
            new = layer.metrics.counts
            self._counts.append({name: count - counts.get(name, 0.0) for name, count in new.items()})
            if self._graph is None:
                layer.metrics.counts = counts
