"""Forwarding: base of the layers that pass their sources on."""

from __future__ import annotations

from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Consumed, Traits


class Forwarding(Layer):
    """Base of the layers that pass their sources on.

    The layer reads from a source whatever the readers of its outputs need.

    Attributes
    ----------
    forwards : frozenset of str
        The forms of a source, such as "labels" or "raw", that readers can read from the outputs.
    """

    traits = Traits(role="connection", takes_mask=True)
    forwards: frozenset[Consumed] = frozenset({"data", "labels", "ids"})
