"""LayerSite: the position of a layer in a net."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from singa_dask.layers.base import Layer


@dataclass(frozen=True)
class ShardIndex:
    """Index of a shard, counted from 0, and the number of shards."""

    index: int = 0
    count: int = 1


WHOLE = ShardIndex()


@dataclass(frozen=True)
class LayerSite:
    """The position of an instance of a layer in a net. The net sets it.

    Attributes
    ----------
    layer : str
        Name of the layer in the job.
    batch_shard : ShardIndex
        The shard of the group's batch that the instance computes.
    feature_shard : ShardIndex
        The shard of the layer's output features that the instance computes.
    first_step, n_steps : int
        The first time step that the instance computes, and the number of time steps. In arrays, the rows of the first
        time step come first.
    prototype : Layer or None
        In an unrolled net, the instance of the layer for time step 0. All other instances use its params. None for the
        instance for time step 0 itself.
    peer : int
        For a bridge: the worker at the other end.
    channel : str
        For a bridge: name of the connection, the same at both ends.
    """

    layer: str
    batch_shard: ShardIndex = WHOLE
    feature_shard: ShardIndex = WHOLE
    first_step: int = 0
    n_steps: int = 1
    prototype: Layer | None = None
    peer: int = 0
    channel: str = ""
