"""Forwarding: base of layers that pass on the data of their sources."""

from __future__ import annotations

from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Consumed, Traits


class Forwarding(Layer):
    """Base of the layers that pass their sources on.

    The layer reads from a source exactly what the readers of its outputs need.

    Attributes
    ----------
    forwards : frozenset of str
        What readers can read from the outputs, if the source has it, e.g. "labels" or "raw"; see `Traits.consumes`.
    """

    traits = Traits(role="connection", takes_mask=True)
    forwards: frozenset[Consumed] = frozenset({"data", "labels", "ids"})
