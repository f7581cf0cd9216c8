"""Feature: what passes between two layers, and Connection, how; Context: what all layers of one net share."""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from singa_dask.conf import Phase
from singa_dask.data.stores.class_names import ClassNames

__all__ = ["Connection", "Context", "Cut", "Feature", "Read", "Stored"]

Read: TypeAlias = Literal["data", "labels", "ids", "stored", "index", "nothing"]


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
    states : dict of str to object
        What layers, by name, keep from one batch to the next: hidden states, Gibbs chains.
    exchange : Exchange or None
        How layers on this worker reach those on other workers of the group, where a net is partitioned so.
    stream_start : bool
        Whether the batch begins its stream of records anew, so that a state of the batch before does not belong to it.
    frozen : bool
        Whether the params keep their values from the first pass on, so that what a layer has made of them stays good.
    """

    phase: Phase = Phase.TRAIN
    seed: int = 0
    dtype: Any = field(default_factory=lambda: np.dtype(np.float32))
    worker: int = 0
    n_workers: int = 1
    shares: tuple[int, ...] = ()
    group: int = 0
    n_groups: int = 1
    step: int = 0
    deals: Mapping[str, Sequence[int]] = field(default_factory=dict)
    class_names: ClassNames = field(default_factory=ClassNames)
    host_names: Collection[str] = ()
    states: dict[str, Any] = field(default_factory=dict)
    stream_start: bool = False
    exchange: Any = None
    frozen: bool = False

    @property
    def weight(self) -> float:
        """How much the mean over this worker's rows counts in the average over the workers of the group."""
        return self.shares[self.worker] * self.n_workers / sum(self.shares) if self.shares else 1.0

    @property
    def param_dtype(self) -> np.dtype[Any]:
        """Type of what has to be exact: params, their gradients, statistics, losses; float32 with bfloat16."""
        return np.promote_types(self.dtype, np.float32)


class Connection(enum.Enum):
    """How one element of a layer depends on its source (SINGA's ``src_neuron_connection``)."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_ALL = "one-to-all"


class Cut(NamedTuple):
    """A stretch [start, stop) of a whole of ``total``."""

    start: int
    stop: int
    total: int

    @classmethod
    def of(cls, total: int, part: int, n_parts: int) -> Cut:
        """Return one of so many parts that are as equal as can be."""
        return cls(part * total // n_parts, (part + 1) * total // n_parts, total)

    @property
    def size(self) -> int:
        """Its length."""
        return self.stop - self.start


class Stored(NamedTuple):
    """Records as a store has them, for a consumer that makes floats of them itself.

    Attributes
    ----------
    values : ndarray, shape (N, ...), uint8 or float32
        May be used until the next batch is computed.
    mean, std : ndarray of one record's shape, float, or None
        What is to be subtracted, and what divides the difference.
    """

    values: Any
    mean: Any = None
    std: Any = None


class Feature:
    """What a layer hands to one consumer: ``data`` forward, ``grad`` back.

    Attributes
    ----------
    shape : tuple of int
        Batch first; that of images is (N, C, H, W), whatever their order in memory.
    data : ndarray, shape ``shape``
        Written by the layer that owns this feature; an array of the device, but of integers always one of the host.
    grad : ndarray, shape ``shape``, or None
        Overwritten by the one consumer; None where no gradient is wanted.
    wants_grad : bool
        Whether a loss reaches back through here to something that learns; the net decides.
    reusable : bool
        The layer never reads ``data`` again, so its one consumer may compute in the same memory.
    labels : ndarray, shape (N,), int32, or None
        Labels of the records, where the layer has any.
    ids, epochs : ndarray, shape (N,), int64, or None
        Number of each record in its store, and the epoch in which it is read, where there is a store.
    stored : Stored or None
        In place of ``data`` where all who read the records take them as stored.
    index : ndarray, shape (rows,), integers, or None
        Beside ``data``, or in its place where nobody reads that: the place of the one in each one-hot row.
    n_steps : int
        Time steps whose rows lie one after the other, those of the first step first.
    columns : Cut or None
        Which part of the features this is, along axis 1, where a layer is partitioned by features.
    read_as : set of str
        What its consumers read: "data", "labels", "ids" (and epochs), "stored", "index"; "nothing" where nobody does.
    """

    def __init__(
        self, shape: Sequence[int], dtype: Any = np.float32, wants_grad: bool = True, reusable: bool = False
    ) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.wants_grad = wants_grad
        self.reusable = reusable
        self.data: Any = None
        self.grad: Any = None
        self.labels: Any = None
        self.ids: Any = None
        self.epochs: Any = None
        self.stored: Stored | None = None
        self.index: Any = None
        self.n_steps = 1
        self.columns: Cut | None = None
        self.read_as: set[Read] = set()

    @property
    def wants_data(self) -> bool:
        """Whether a consumer reads ``data``; so it is taken where there is no consumer."""
        return "data" in self.read_as or not self.read_as

    @property
    def on_host(self) -> bool:
        """Whether ``data`` lies in host memory wherever the net is computed: numbers, which say what is to be read."""
        return self.dtype.kind in "iub"

    @property
    def size(self) -> int:
        """Values of one record."""
        return math.prod(self.shape[1:])
