"""Forwarding: base of the layers that pass on their sources."""

from __future__ import annotations

from typing import ClassVar

from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Consumed, Traits


class Forwarding(Layer):
    """Base of the layers that pass on their sources. A source is consumed as the readers consume the outputs.

    Attributes
    ----------
    forwards : frozenset of str
        What can be consumed of its outputs just as of its sources.
    outputs_key : str
        Key of the block with the number of outputs, one for each reader; empty if all readers share one.
    """

    traits = Traits(role="connection", takes_mask=True)
    forwards: frozenset[Consumed] = frozenset({"data", "labels", "ids"})
    outputs_key: ClassVar[str] = ""
