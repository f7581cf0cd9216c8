"""Feature: an output of a layer, with labels and ids of the records in its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from singa_dask.layers.traits import Consumed
from singa_dask.ops.contract import Array, DType, Ops


class Span(NamedTuple):
    """The items from ``start`` to ``stop``, exclusive, of ``total`` items."""

    start: int
    stop: int
    total: int

    @classmethod
    def of(cls, total: int, index: int, count: int) -> Span:
        """Return the span of part ``index`` of ``count`` nearly equal parts of ``total`` items."""
        return cls(index * total // count, (index + 1) * total // count, total)

    @property
    def size(self) -> int:
        """Number of items in the span."""
        return self.stop - self.start


@dataclass(frozen=True)
class RecordIds:
    """Labels, ids and epochs of the records in the rows of a batch.

    Attributes
    ----------
    labels : ndarray, shape (N,), int32, or None
    ids, epochs : ndarray, shape (N,), int64, or None
        ``ids`` are the indices of the records in their store. ``epochs`` are the epochs in which the records are read.
    partner_labels : ndarray, shape (N,), int32, or None
        If each row mixes two records: the label of the record with the smaller weight. ``labels`` then has the label of
        the record with the larger weight.
    mix_weights : ndarray, shape (N,), float64, or None
        If each row mixes two records: the larger weight, from 0.5 to 1.
    """

    labels: Array | None = None
    ids: Array | None = None
    epochs: Array | None = None
    partner_labels: Array | None = None
    mix_weights: Array | None = None

    def slice(self, take: Callable[[Array], Array]) -> RecordIds:
        """Return the labels, ids and epochs of some rows; ``take`` selects these rows of an array (N,)."""
        return RecordIds(*(None if values is None else take(values) for values in self._values()))

    @classmethod
    def join(cls, parts: Sequence[RecordIds], join: Callable[[list[Array]], Array]) -> RecordIds:
        """Join several batches to one; ``join`` concatenates arrays (N,).

        A column that is missing in one of the batches is omitted.
        """
        columns = zip(*(part._values() for part in parts), strict=True)
        known = ([values for values in column if values is not None] for column in columns)
        return cls(*(join(column) if len(column) == len(parts) else None for column in known))

    @classmethod
    def first(cls, parts: Sequence[RecordIds]) -> RecordIds:
        """Merge objects that describe the same rows: take each column from the first object that has it."""
        columns = zip(*(part._values() for part in parts), strict=True)
        return cls(*(next((values for values in column if values is not None), None) for column in columns))

    def stored(self, ops: Ops) -> RecordIds:
        """Return a copy whose labels are in memory that kernels can read."""
        return self if self.labels is None else replace(self, labels=ops.labels(self.labels))

    def _values(self) -> tuple[Array | None, ...]:
        return self.labels, self.ids, self.epochs, self.partner_labels, self.mix_weights


class Raw(NamedTuple):
    """Records before normalisation, for a layer that normalises them itself.

    Attributes
    ----------
    values : ndarray, shape (N, ...), uint8 or float32
        The records as stored; valid until the next batch is computed.
    mean, std : ndarray with the shape of one record, a number, or None
        To normalise, subtract ``mean``, then divide by ``std``.
    """

    values: Array
    mean: Array | float | None = None
    std: Array | float | None = None


class Feature:
    """An output of a layer. The forward pass writes ``data``, the backward pass ``grad``.

    Attributes
    ----------
    shape : tuple of int
        Shape, batch first. Images are (N, C, H, W), whatever their layout in memory.
    data : ndarray, shape ``shape``
        The values. The layer with this output writes them: ``data[...] = values``. The array is on the device; integers
        are in host memory. Reading ``data`` raises RuntimeError if it has no memory; see `has_data`.
    grad : ndarray, shape ``shape``, or None
        The gradient. The consumer of the output overwrites it: ``grad[...] = values``. None if no gradient is needed.
    requires_grad : bool
        Whether the net needs the gradient, because the feature is on a path from a loss back to params.
    overwritable : bool
        Whether the consumer may write its results to the memory of ``data``, because ``backward`` of the layer with
        this output does not read it.
    own_data : bool or "consumed"
        Whether the net allocates ``data``: always (True), never (False), or only if a consumer reads ``data`` and not
        another form of it ("consumed").
    own_grad : bool
        Whether the net allocates ``grad`` if a gradient is needed.
    records : RecordIds
        Labels, ids and epochs of the rows. Unknown values are None.
    raw : Raw or None
        Replaces ``data`` if all consumers read records as stored.
    one_hot_index : ndarray, shape (rows,), integers, or None
        For one-hot rows: the index of the column that is 1 in each row. Replaces ``data`` if no consumer reads
        ``data``.
    n_steps : int
        Number of time steps in the rows. The rows of the first step come first.
    span : Span
        Range of the layer's features that this output has along axis 1: all features, unless the layer is partitioned
        by features.
    consumed_as : set of str
        What the consumers read: "data", "labels", "ids" (and epochs), "raw", "one_hot_index", or "nothing". In a wired
        net, an output without consumers has "data".
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DType = np.float32,
        requires_grad: bool = True,
        overwritable: bool = False,
        own_data: bool | Literal["consumed"] = True,
        own_grad: bool = True,
    ) -> None:
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.requires_grad = requires_grad
        self.overwritable = overwritable
        self.own_data = own_data
        self.own_grad = own_grad
        self._data: Array | None = None
        self._grad: Array | None = None
        self.records = RecordIds()
        self.raw: Raw | None = None
        self.one_hot_index: Array | None = None
        self.n_steps = 1
        self.span = Span.of(self.shape[1] if len(self.shape) > 1 else 1, 0, 1)
        self.consumed_as: set[Consumed] = set()

    @property
    def data(self) -> Array:
        if self._data is None:
            hint = "In setup() no feature has data. Does its reader declare that it consumes data? See Traits."
            raise RuntimeError(f"the feature of shape {self.shape} has no data. {hint}")
        return self._data

    @data.setter
    def data(self, values: Array | None) -> None:
        if self.own_data and self._data is not None and values is not self._data:
            raise TypeError("data = ... does not reach the layers that read it. Write into its memory: data[...] = ...")
        self._data = values

    @property
    def has_data(self) -> bool:
        """Whether `data` has memory."""
        return self._data is not None

    @property
    def grad(self) -> Array | None:
        return self._grad

    @grad.setter
    def grad(self, values: Array | None) -> None:
        if values is not self._grad and (self._grad is not None or not self.requires_grad):
            what = (
                "This source needs no gradient: write only if grad is not None."
                if self._grad is None
                else "Write into its memory: grad[...] = ..."
            )
            raise TypeError(f"grad = ... does not reach the layer that reads it. {what}")
        self._grad = values

    @property
    def output_grad(self) -> Array:
        """The gradient, for the layer with this output. Raises RuntimeError if there is none."""
        if self.grad is None:
            raise RuntimeError(f"the feature of shape {self.shape} has no gradient. Only a backward pass has one.")
        return self.grad

    def allocate(self, name: str, make: Callable[..., Array]) -> None:
        """Allocate ``data`` or ``grad``; ``make`` allocates an array, given shape and dtype."""
        setattr(self, name, make(self.shape, self.dtype))

    @property
    def size(self) -> int:
        """Number of values in one record."""
        return math.prod(self.shape[1:])


def on_host(feature: Feature) -> bool:
    """Return whether the data of a feature is in host memory even on a GPU, as integers are."""
    return feature.dtype.kind in "iub"
