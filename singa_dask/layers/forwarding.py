"""Forwarding: a layer that passes on what it reads."""

from __future__ import annotations

from typing import ClassVar

from singa_dask.layers.base import Layer
from singa_dask.layers.traits import Consumed, Traits


class Forwarding(Layer):
    """A layer that passes on what it reads. It consumes of its sources what its readers do.

    Attributes
    ----------
    forwards : frozenset of str
        What its outputs have unchanged, of what readers can consume.
    outputs_key : str
        Key of the block that says how many outputs there are, one for each reader; empty if all share one.
    """

    traits = Traits(role="connection", takes_mask=True)
    forwards: frozenset[Consumed] = frozenset({"data", "labels", "ids"})
    outputs_key: ClassVar[str] = ""
