"""Context: what all layers of a net share; Site: what it knows about one instance; Span and Shard: parts of a whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from singa_dask.conf import Phase
from singa_dask.data.stores.class_names import ClassNames
from singa_dask.gate import Gate
from singa_dask.ops.contract import Array

if TYPE_CHECKING:
    from singa_dask.layers.base import Layer
    from singa_dask.layers.bridge import Exchange


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


@dataclass
class Context:
    """What all layers of one net share: who computes it, with which seed, and at which step.

    Attributes
    ----------
    phase : Phase
        TRAIN, VALIDATION or TEST: the phase that the net was built for.
    seed : int
        The job's seed; every random number is a function of it, of a name and of the step.
    dtype : dtype
        Of features and their gradients.
    worker, n_workers : int
        Place in the worker group; a batch is split over the group by rows.
    shares : tuple of int
        Proportions in which the workers of the group share a batch; empty where the parts are equal.
    group, n_groups : int
        The worker group; groups read disjoint shares of the records.
    step : int
        Set by whoever runs the net, before each pass.
    deals : mapping of str to sequence of int
        By input layer: the order in which blocks are dealt to the workers, where it is given; see `Sampler`.
    class_names : ClassNames
        What the labels of the training net's input layers mean.
    host_names : collection of str
        What the host of the process is called; bytes that lie there count as local.
    reader_bytes : int or None
        Share of each store's reader in the memory of this process, if known; see `MemoryBudget`.
    states : dict of str to tuple of ndarray
        What layers, by name, keep from one batch to the next: hidden states, Gibbs chains.
    exchange : Exchange or None
        How layers on this worker reach those on other workers of the group, where a net is partitioned so.
    stream_start : bool
        Whether the batch begins its stream of records anew, so that a state of the batch before does not belong to it.
    gate : Gate
        Where threads wait for versions of the params, and where layers see that the job has ended; of the unit.
    frozen : bool
        Whether the params keep their values from the first pass on, so that what a layer has made of them stays good.
    """

    phase: Phase = Phase.TRAIN
    seed: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    worker: int = 0
    n_workers: int = 1
    shares: tuple[int, ...] = ()
    group: int = 0
    n_groups: int = 1
    step: int = 0
    deals: Mapping[str, Sequence[int]] = field(default_factory=dict)
    class_names: ClassNames = field(default_factory=ClassNames)
    host_names: Collection[str] = ()
    reader_bytes: int | None = None
    states: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    stream_start: bool = False
    exchange: Exchange | None = None
    gate: Gate = field(default_factory=Gate)
    frozen: bool = False

    @property
    def bridges(self) -> Exchange:
        """`exchange`; RuntimeError where the net is not partitioned over workers."""
        if self.exchange is None:
            raise RuntimeError(f"worker {self.worker}: it has no exchange. Expected one in a partitioned net.")
        return self.exchange

    @property
    def weight(self) -> float:
        """How much the mean over this worker's rows counts in the average over the workers of the group."""
        return self.shares[self.worker] * self.n_workers / sum(self.shares) if self.shares else 1.0

    def weight_of(self, site: Site) -> float:
        """Return `weight` for a layer that computes a part of the batch; 1 for one that computes all of it."""
        return self.weight if site.batch_shard.count > 1 else 1.0

    @property
    def param_dtype(self) -> np.dtype[Any]:
        """Type of what has to be exact: params, their gradients, statistics, losses; float32 with bfloat16."""
        return np.promote_types(self.dtype, np.float32)
