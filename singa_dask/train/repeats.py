"""Repeats: the part of a training step that a GPU can do again and again by itself, without being told each kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from singa_dask.layers import Layer
from singa_dask.net import NeuralNet

__all__ = ["FIRST_STEPS", "Repeats"]

LOG = logging.getLogger(__name__)

# In the first steps kernels are compiled and scratch memory is allocated, which nothing records.
FIRST_STEPS = 2
# Memory that is not the same from step to step is not worth so many recordings.
MOST_RECORDINGS = 8


class Repeats:
    """What a step of a net is made of, for a GPU: layers that read records, and kernels that are always the same.

    Parameters
    ----------
    net : NeuralNet

    Attributes
    ----------
    readers : list of Layer
        They work on the host, in each step anew, and come first.
    layers : list of Layer
        Those whose kernels are repeated.
    n_recordings : int
        How often kernels were recorded.
    """

    def __init__(self, net: NeuralNet) -> None:
        self.net = net
        self.readers = [layer for layer in net.layers if not layer.repeats]
        self.layers = [layer for layer in net.layers if layer.repeats]
        self._read = [feature for layer in self.readers for feature in layer.features]
        self._recorded: Any = None
        self._counts: list[dict[str, float]] = []
        self._places: list[int] = []
        self._n_steps = self.n_recordings = 0
        self._possible = net.ops.records and not net.is_partitioned and self._readers_come_first()

    def _readers_come_first(self) -> bool:
        """Tell whether what has to be done on the host needs nothing of the rest, and does not learn."""
        first = set(self.readers)
        return all(not layer.learns and first.issuperset(self.net.sources[layer]) for layer in self.readers)

    def due(self) -> bool:
        """Count a step; tell whether `run` does it."""
        self._n_steps += 1
        return self._possible and self._n_steps > FIRST_STEPS

    def run(self, compute: Callable[[], None]) -> None:
        """Do what ``compute`` asks for: record it where that has not been done, and have it repeated.

        Parameters
        ----------
        compute : callable
            Runs `layers` forward and back. It is called to record, or where that does not work.
        """
        place = self.net.ops.place
        places = [place(x) for feature in self._read for x in (feature.data, feature.labels, feature.index)]
        if self._recorded is None or not self._recorded.holds or places != self._places:
            self._places = places
            self._record(compute)
            if self._recorded is None:
                compute()
                return
        else:
            for layer, more in zip(self.layers, self._counts, strict=True):
                layer.metrics.count(more)
        context = self.net.context
        self._recorded.repeat(lambda key: Layer.key_at(key, context.step))

    def _record(self, compute: Callable[[], None]) -> None:
        before = [dict(layer.metrics.counts) for layer in self.layers]
        try:
            self._recorded = self.net.ops.record(compute)
            self.n_recordings += 1
            self._possible = self.n_recordings < MOST_RECORDINGS
        except Exception as error:
            # whatever it is that a driver or a layer cannot do while it is recorded, it can do one by one
            LOG.warning("steps are told kernel by kernel, as they cannot be recorded: %s", error)
            self._recorded, self._possible = None, False
        self._counts = []
        for layer, counts in zip(self.layers, before, strict=True):
            new = layer.metrics.counts
            self._counts.append({name: count - counts.get(name, 0.0) for name, count in new.items()})
            if self._recorded is None:
                layer.metrics.counts = counts
