"""Site: what the net knows about one instance of a layer; Span and Shard: parts of a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from singa_dask.layers.base import Layer

__all__ = ["Shard", "Site", "Span"]


class Span(NamedTuple):
    """The part [start, stop) of ``total`` items."""

    start: int
    stop: int
    total: int

    @classmethod
    def of(cls, total: int, index: int, count: int) -> Span:
        """Return one of ``count`` parts that are as equal as possible."""
        return cls(index * total // count, (index + 1) * total // count, total)

    @property
    def size(self) -> int:
        """Number of items."""
        return self.stop - self.start


@dataclass(frozen=True)
class Shard:
    """Part ``index`` of ``count`` parts."""

    index: int = 0
    count: int = 1


WHOLE = Shard()


@dataclass(frozen=True)
class Site:
    """Where one instance of a layer stands in a net. The net makes it; it never changes.

    Attributes
    ----------
    name : str
        Name of the instance, unique in the net. A copy in an unrolled net is called ``<step>#<layer>``.
    layer : str
        Name of the layer in the job.
    batch_shard : Shard
        Part of the group's batch that the instance computes.
    feature_shard : Shard
        Part of the layer's output features that it computes.
    first_step, n_steps : int
        Time steps that it computes; the rows of the first step come first.
    prototype : Layer or None
        For a later copy in an unrolled net: the copy of step 0, whose params it uses.
    peer : int
        For a bridge: the worker at the other end.
    channel : str
        For a bridge: what both ends call it.
    """

    name: str
    layer: str
    batch_shard: Shard = WHOLE
    feature_shard: Shard = WHOLE
    first_step: int = 0
    n_steps: int = 1
    prototype: Layer | None = None
    peer: int = 0
    channel: str = ""
