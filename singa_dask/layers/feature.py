"""What passes between layers: traits of a type, features with what is known of their records, and params."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.conf import InitConf, ParamConf
from singa_dask.ops.contract import Array, DType, Ops, Scalar

Consumed: TypeAlias = Literal["data", "labels", "ids", "raw", "one_hot_index", "nothing"]


class Connection(enum.Enum):
    """How one output feature depends on the features of the source (SINGA's ``src_neuron_connection``)."""

    ONE_TO_ONE = "one-to-one"
    ONE_TO_ALL = "one-to-all"


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What a type of layer states about itself. The defaults are right for every layer; each trait buys something.

    Attributes
    ----------
    n_sources : tuple of int and (int or None)
        Fewest and most source layers; None is no upper bound.
    params : tuple of str
        Names of the params, in the order in which `Layer.setup` adds them and a job lists them.
    time_foldable : bool
        No row depends on another one. An unrolled net then computes all time steps in one call, as more rows.
    feature_parallel : Connection or None
        The layer can compute a part of its output features, as `Layer.feature_span` says, from those features of its
        source (one-to-one) or from all of them (one-to-all). So it can be partitioned by features.
    capturable : bool
        `Layer.forward` and `Layer.backward` only call kernels, always the same ones on the same arrays. A GPU then
        replays them without the host, and a CPU those of our own layers. Work of the host belongs in `Layer.prepare`.
    reads_on_host : bool
        `Layer.prepare` reads the data of the sources on the host. Steps of a net are then captured only if these are
        not `capturable`, so that they come before all that is replayed.
    accumulates : bool
        `Layer.backward` adds to the gradients of params that say `Param.accumulates`. Without it
        the net gives each later copy of the layer memory of its own and adds the gradients itself.
    reads_gradients : bool
        `Layer.backward` does not write to the gradients of its outputs. A layer that passes gradients on unchanged, as
        `Add` does, then lets several features have the same one.
    adds_gradient : bool
        `Layer.backward` adds the gradient of `Feature.grad_added` of its source, if there is one, to that of its own.
    consumes : tuple of str, or of tuples of str
        What the layer reads of each source: "data", "labels", "ids" (and epochs), "raw" or "one_hot_index"; "data" of
        those not listed. In a partitioned net nothing else is sent. "raw" and "one_hot_index" may be missing, and
        ``data`` is there instead.
    metrics : tuple of str
        Metrics that the layer adds, so that all workers of a group name them alike.
    takes_mask : bool
        A source beside the others may be a PaddingMask: bool, (T N, 1), true where a row is no padding.
    recurrent : bool
        Each time step also reads the previous one of the same layer, as its last source.
    time_from_columns : bool
        Each time step reads its own column of a source that is not unrolled.
    all_steps_from : int or None
        Sources from this one on are read with all of their time steps at once, which may be more or fewer than those of
        the layer: `Feature.n_steps` of the source says how many.
    outputs_key : tuple of str, or None
        Block and key of the job that say how many outputs there are, one for each reader; None if all share one.
    needs_split : bool
        Several consumers need a Split layer, which sums their gradients.
    forwards : frozenset of str
        What the layer passes on unchanged, of what its consumers read.
    is_input, is_loss, is_output : bool
        Records enter here; gradients start here; results leave here and there are no gradients.
    predicts : {"", "classes", "labels", "values"}
        What a loss compares with its second source: probabilities of classes that exclude each other, which are its
        output, as of a Softmax of its first source; probabilities of labels that do not, as of a Sigmoid; or the
        values of its first source. A layer with "classes" that is no loss has such probabilities.
    reads_beside : {"", "targets", "labels", "weights"}
        What an input layer reads of the records of another one, which reads their features.
    mixes_labels : bool
        Of rows that are mixed of two records a loss reads both labels, see `RecordIds`.
    learns_without_loss : bool
        The layer is trained without a loss, as those of an RBM are. Its outputs have no gradients.
    """

    n_sources: tuple[int, int | None] = (1, 1)
    params: tuple[str, ...] = ()
    time_foldable: bool = False
    feature_parallel: Connection | None = None
    capturable: bool = False
    reads_on_host: bool = False
    accumulates: bool = False
    reads_gradients: bool = False
    adds_gradient: bool = False
    consumes: tuple[Consumed | tuple[Consumed, ...], ...] = ()
    metrics: tuple[str, ...] = ()
    takes_mask: bool = False
    recurrent: bool = False
    time_from_columns: bool = False
    all_steps_from: int | None = None
    outputs_key: tuple[str, str] | None = None
    needs_split: bool = True
    forwards: frozenset[Consumed] = frozenset()
    is_input: bool = False
    is_loss: bool = False
    is_output: bool = False
    predicts: Literal["", "classes", "labels", "values"] = ""
    reads_beside: Literal["", "targets", "labels", "weights"] = ""
    mixes_labels: bool = False
    learns_without_loss: bool = False

    @property
    def connection(self) -> Connection:
        """How the layer depends on its sources, where that makes a difference."""
        return self.feature_parallel or Connection.ONE_TO_ONE

    def replace(self, **changes: Any) -> Traits:
        """Return a copy with some traits changed."""
        return replace(self, **changes)

    def reads_all_steps(self, source: int) -> bool:
        """Tell whether the layer reads all time steps of a source at once."""
        return self.all_steps_from is not None and source >= self.all_steps_from

    def consumed(self, source: int) -> set[Consumed]:
        """Return what the layer reads of a source."""
        wanted = self.consumes[source] if source < len(self.consumes) else "data"
        return {wanted} if isinstance(wanted, str) else set(wanted)


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
class RecordIds:
    """What is known of the records in the rows of a batch, beside their data.

    Attributes
    ----------
    labels : ndarray, shape (N,), int32, or None
    ids, epochs : ndarray, shape (N,), int64, or None
        Number of each record in its store, and the epoch in which it is read.
    partner_labels : ndarray, shape (N,), int32, or None
        Where rows are mixed of two records, labels of those with the smaller shares; ``labels`` are of the others.
    shares : ndarray, shape (N,), float64, or None
        The larger shares, from 0.5 to 1.
    """

    labels: Array | None = None
    ids: Array | None = None
    epochs: Array | None = None
    partner_labels: Array | None = None
    shares: Array | None = None

    def slice(self, take: Callable[[Array], Array]) -> RecordIds:
        """Return the records of some rows: ``take`` returns these of an array (N,)."""
        return RecordIds(*(None if values is None else take(values) for values in self._values()))

    @classmethod
    def join(cls, parts: Sequence[RecordIds], join: Callable[[list[Array]], Array]) -> RecordIds:
        """Return the records of several batches: ``join`` joins arrays (N,). What one part lacks, the result lacks."""
        columns = zip(*(part._values() for part in parts), strict=True)
        known = ([values for values in column if values is not None] for column in columns)
        return cls(*(join(column) if len(column) == len(parts) else None for column in known))

    @classmethod
    def first(cls, parts: Sequence[RecordIds]) -> RecordIds:
        """Return of each kind what the first of several descriptions of the same rows has."""
        columns = zip(*(part._values() for part in parts), strict=True)
        return cls(*(next((values for values in column if values is not None), None) for column in columns))

    def stored(self, ops: Ops) -> RecordIds:
        """Return them with the labels in memory where kernels read them."""
        return self if self.labels is None else replace(self, labels=ops.labels(self.labels))

    def _values(self) -> tuple[Array | None, ...]:
        return self.labels, self.ids, self.epochs, self.partner_labels, self.shares


class Raw(NamedTuple):
    """Records as a store has them, for a consumer that normalises them itself.

    Attributes
    ----------
    values : ndarray, shape (N, ...), uint8 or float32
        Valid until the next batch is computed.
    mean, std : ndarray of one record's shape, a number, or None
        What is subtracted, and what then divides.
    """

    values: Array
    mean: Array | float | None = None
    std: Array | float | None = None


class Feature:
    """What a layer hands to one consumer: ``data`` forward, ``grad`` backward.

    Attributes
    ----------
    shape : tuple of int
        Batch first; that of images is (N, C, H, W), whatever their order in memory.
    data : ndarray, shape ``shape``
        Written by the layer that owns this feature, ``data[...] = values``; an array of the device, except that
        integers are in host memory. RuntimeError where it has no memory; see `has_data`.
    grad : ndarray, shape ``shape``, or None
        Overwritten by the one consumer, ``grad[...] = values``; None where no gradient is needed.
    requires_grad : bool
        A loss reaches back through here to something that learns; the net decides.
    overwritable : bool
        The layer never reads ``data`` again, so that its one consumer may compute in the same memory.
    own_data : bool or "consumed"
        The layer's base allocates ``data``: always, never, or unless all consumers read another form of it.
    own_grad : bool or callable
        The layer's base allocates ``grad`` where it is required; a function says so once that is known of all layers.
    records : RecordIds
        Labels, ids and epochs of the rows, as far as the layer has them.
    raw : Raw or None
        In place of ``data`` where all who read the records take them as stored.
    one_hot_index : ndarray, shape (rows,), integers, or None
        Column of the one in each one-hot row, beside ``data`` or, where nobody reads that, in place of it.
    n_steps : int
        Time steps whose rows lie one after the other, those of the first step first.
    span : Span or None
        Which features of the whole these are, along axis 1, where a layer is partitioned by features.
    traits : Traits
        Those of the layer that owns this feature.
    can_relu, relu : bool
        The layer can write the ReLU of what it computes as ``data``, and take the gradient of that as ``grad``; and it
        is to do so, as a ReLU layer reads it, which then has nothing to compute.
    relu_of : Feature or None
        Of the output of such a ReLU layer: the feature that it reads, which has the same data and gradient.
    is_masked : bool
        Of that feature: ``grad`` is 0 already where ``data`` is.
    grad_of : Feature or None
        The feature whose gradient is ``grad`` as well; see `share_grad`.
    can_add, added : bool, Feature or None
        The layer can add another feature to what it computes as ``data``; and the one that it is to add, as an Add
        reads both, which then has nothing to compute.
    grad_added : Feature or None
        The feature whose gradient the layer that reads this one adds to ``grad``; a Split then has nothing to add.
    consumed_as : set of str
        What the consumers read: "data", "labels", "ids" (and epochs), "raw", "one_hot_index"; "nothing" if none does.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DType = np.float32,
        requires_grad: bool = True,
        overwritable: bool = False,
        own_data: bool | Literal["consumed"] = True,
        own_grad: bool | Callable[[], bool] = True,
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
        self.span: Span | None = None
        self.traits = Traits()
        self.can_relu, self.relu, self.is_masked = False, False, False
        self.relu_of: Feature | None = None
        self.grad_of: Feature | None = None
        self.can_add = False
        self.added: Feature | None = None
        self.grad_added: Feature | None = None
        self.consumed_as: set[Consumed] = set()

    @property
    def data(self) -> Array:
        if self._data is None:
            hint = "In setup() none has. Does its reader state that it consumes data? See Traits."
            raise RuntimeError(f"feature {self.shape}: it has no data. {hint}")
        return self._data

    @data.setter
    def data(self, values: Array | None) -> None:
        if self.own_data and self._data is not None and values is not self._data:
            raise TypeError("data = ... has no effect on those who read it. Write into its memory: data[...] = ...")
        self._data = values

    @property
    def has_data(self) -> bool:
        """Whether there is `data`."""
        return self._data is not None

    @property
    def grad(self) -> Array | None:
        if self.grad_of is not None:
            return self.grad_of.grad if self.requires_grad else None
        return self._grad

    @grad.setter
    def grad(self, values: Array | None) -> None:
        if values is not self._grad and (self._grad is not None or not self.requires_grad):
            what = (
                "This source needs none: write where grad is not None."
                if self._grad is None
                else "Write into its memory: grad[...] = ..."
            )
            raise TypeError(f"grad = ... has no effect on the layer that reads it. {what}")
        self._grad = values

    @property
    def output_grad(self) -> Array:
        """`grad`, for the layer that owns this feature; RuntimeError where there is none."""
        if self.grad is None:
            raise RuntimeError(f"feature {self.shape}: it has no gradient. Expected one, where a layer goes back.")
        return self.grad

    def share_grad(self, other: Feature) -> None:
        """Use the gradient of another feature, in its memory, if the layer that owns this feature permits it.

        For the `Layer.setup` of its consumer, which then has nothing to write where both are the same array.
        """
        if self.traits.reads_gradients and self.own_grad and self.dtype == other.dtype:
            self.own_grad, self.grad_of = False, other

    @property
    def needs_mask(self) -> bool:
        """Whether the layer that owns this feature has to set ``grad`` to 0 where ``data`` is, as of a ReLU."""
        return self.relu and not self.is_masked

    def masked_grad(self, ops: Ops) -> Array:
        """Return `output_grad`, set to 0 where ``data`` is if that is needed."""
        if self.needs_mask:
            ops.relu_grad(self.data, self.output_grad, out=self.output_grad)
        return self.output_grad

    @property
    def labels(self) -> Array | None:
        """Labels of the rows, (N,) int32, or None."""
        return self.records.labels

    @property
    def data_is_consumed(self) -> bool:
        """Whether a consumer reads ``data``; so it is where there is no consumer."""
        return "data" in self.consumed_as or not self.consumed_as

    @property
    def needs_data_memory(self) -> bool:
        """Whether the layer's base is to allocate ``data``."""
        if self.own_data == "consumed":
            return "data" in self.consumed_as or self.consumed_as.isdisjoint(("raw", "one_hot_index"))
        return self.own_data

    @property
    def needs_grad_memory(self) -> bool:
        """Whether the layer's base is to allocate ``grad``."""
        return self.requires_grad and (self.own_grad() if callable(self.own_grad) else self.own_grad)

    def allocate(self, name: str, make: Callable[..., Array]) -> None:
        """Allocate ``data`` or ``grad``; ``make`` takes shape and dtype."""
        setattr(self, name, make(self.shape, self.dtype))

    @property
    def on_host(self) -> bool:
        """Whether ``data`` is in host memory wherever the net is computed: integers, which say what is to be read."""
        return self.dtype.kind in "iub"

    @property
    def size(self) -> int:
        """Values of one record."""
        return math.prod(self.shape[1:])


ZEROS, ONES = (InitConf(type="Constant", value=value) for value in (0.0, 1.0))
ORTHOGONAL = InitConf(type="Orthogonal")


def glorot(fan_in: int, fan_out: int) -> InitConf:
    """Return the uniform distribution of Glorot and Bengio (2010): within sqrt(6 / (fan_in + fan_out)) of zero."""
    # as many digits as float32 has, and as a person likes to read
    bound = float(f"{math.sqrt(6 / (fan_in + fan_out)):.6g}")
    return InitConf(type="Uniform", low=-bound, high=bound)


class ParamShard(NamedTuple):
    """Which part of a logical param a partition of a layer has: a stretch of one axis."""

    part: int
    axis: int
    span: Span

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the whole, of a part of ``shape``."""
        return (*shape[: self.axis], self.span.total, *shape[self.axis + 1 :])

    def of(self, values: Array) -> Array:
        """Return this part of the whole's values, a view."""
        part: Array = values[(slice(None),) * self.axis + (slice(self.span.start, self.span.stop),)]
        return part


class Param:
    """One array of weights of a layer.

    Parameters
    ----------
    name : str
        Unique in the net.
    shape : sequence of int
    conf : ParamConf
        Initialiser, ``lr_scale``, ``wd_scale``, ``share_from``.
    dtype : dtype
        float32 in training, float64 in gradient checks.
    running_statistic : bool
        Not trained: ``grad`` is what the values are too large by, and an update is ``data -= grad / n_sharers``,
        whatever the job's updater. So the workers of a group keep one average, which is in checkpoints like weights.
    shard : ParamShard, optional
        Which part of a logical param it is, where the layer is partitioned by features.

    Attributes
    ----------
    view : ParamShard or None
        In place of ``shard`` where this process keeps the whole param, as others see other parts of it.
    grad : ndarray, shape ``shape``
        Gradient of this sharer alone; RuntimeError where it has none, see `has_grad`.
    memory : ndarray, shape `memory_shape`
        What ``grad`` lies in.
    initial : InitConf or None
        How to draw initial values that neither the job nor a checkpoint has; None if they have to.
    is_idle : bool
        Its gradient is always 0, so it has none; it counts among the sharers all the same.
    accumulates : bool
        The net adds up the gradients of several copies of a layer: `Layer.backward` is to add to ``grad``.
    owner : Param
        The param whose values these are; itself when it is not shared.
    version : int
        Updates that the values have seen; -1 before they are initialised. The owner's counts.
    last_version : int
        `version` when the gradient was last sent.
    cancellation : Cancellation
        Where to wait for versions; all params of a net use one. The owner's counts.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        conf: ParamConf,
        dtype: DType = np.float32,
        running_statistic: bool = False,
        shard: ParamShard | None = None,
    ) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.conf = conf
        self.dtype = np.dtype(dtype)
        self.running_statistic = running_statistic
        self.shard = shard
        self.view: ParamShard | None = None
        self._data: Array | None = None
        self._grad: Array | None = None
        self._memory: Array | None = None
        self.is_idle = self.accumulates = False
        self.initial: InitConf | None = None
        self.owner: Param = self
        self.version = -1
        self.last_version = -1
        self.cancellation = Cancellation()

    @property
    def key(self) -> str:
        """Name of this part of the param: what servers know it by."""
        return self.key_of(self.name)

    def key_of(self, owner: str) -> str:
        """Return what servers know this part of the values of an owner by."""
        return owner if self.shard is None else f"{owner}@{self.shard.part}"

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the logical param."""
        shard = self.shard or self.view
        return self.shape if shard is None else shard.shape(self.shape)

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape of what is kept and sent: that of the part, or of the whole where that is kept."""
        return self.shape if self.view is None else self.whole_shape

    @property
    def size(self) -> int:
        """Number of values that are kept and sent."""
        return math.prod(self.memory_shape)

    @property
    def values(self) -> Array:
        """All values that are kept, shape `memory_shape`: the owner's memory, which units of one process may share.

        RuntimeError where it has none yet; see `has_data`.
        """
        values = self.owner._data
        if values is None:
            raise RuntimeError(f"param {self.name!r}: it has no values. Expected some to be given or drawn first.")
        # A sharer may see the same values in another shape, as SINGA allows.
        return values if values.shape == self.memory_shape else values.reshape(self.memory_shape)

    @property
    def has_data(self) -> bool:
        """Whether it has `values`."""
        return self.owner._data is not None

    @property
    def data(self) -> Array:
        """What the layer computes with, shape ``shape``: `values`, or a part of them."""
        return self.values if self.view is None else self.view.of(self.values)

    @data.setter
    def data(self, values: Array) -> None:
        self.owner._data = values

    @classmethod
    def part_of(cls, owner: Param, like: Param) -> Param:
        """Return a param that keeps, where its owner is not, the part of the owner's values that ``like`` has."""
        shape = like.shape if like.shard else owner.whole_shape
        return cls(owner.name, shape, owner.conf, owner.dtype, owner.running_statistic, like.shard)

    def keep_whole(self) -> None:
        """Keep the whole param and compute with a part of it."""
        self.view, self.shard = self.shard, None

    @property
    def has_grad(self) -> bool:
        """Whether it has a gradient: it does where it is trained, and does not idle."""
        return self._grad is not None

    @property
    def grad(self) -> Array:
        if self._grad is None:
            raise RuntimeError(f"param {self.name!r}: it has no gradient. Expected a net that trains it.")
        return self._grad

    @grad.setter
    def grad(self, values: Array) -> None:
        if values is not self._grad:
            raise TypeError("grad = ... is never sent. Write into its memory: grad[...] = ...")

    def swap_grad(self, values: Array) -> Array:
        """Move the gradient to other memory; return the memory it was in."""
        before, self._grad = self.grad, values
        return before

    @property
    def memory(self) -> Array:
        if self._memory is None:
            raise RuntimeError(f"param {self.name!r}: it has no gradient. Expected a net that trains it.")
        return self._memory

    def allocate_grad(self, zeros: Callable[..., Array]) -> None:
        """Allocate the gradient, unless there is one; ``zeros`` makes memory of a shape and dtype."""
        if self._grad is None:
            self._memory = zeros(self.memory_shape, self.dtype)
            self._grad = self._memory if self.view is None else self.view.of(self._memory)

    def share(self, owner: Param) -> None:
        """Use the values of ``owner``; the gradient stays this param's own."""
        self.owner = owner.owner

    def wait(self, version: int) -> None:
        """Block until the values have seen ``version`` updates.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        owner = self.owner
        if owner.version >= version:
            return
        what = "update" if version else "first values"
        owner.cancellation.wait(lambda: owner.version >= version, f"{what} of param {owner.name}")

    def publish(self, version: int) -> None:
        """Say that the values have now seen ``version`` updates."""
        owner = self.owner
        with owner.cancellation.condition:
            owner.version = max(version, owner.version)
            owner.cancellation.condition.notify_all()

    def __repr__(self) -> str:
        return f"Param({self.name!r}, {self.shape}, version={self.version})"


# Metrics: what a layer measures of its batches, summed on the device until it is taken.


Totals = Mapping[str, tuple[float, float]]
"""(sum, count) of each metric, by name."""


def add_totals(parts: Iterable[Mapping[str, Sequence[float]]]) -> dict[str, tuple[float, float]]:
    """Return (sum, count) of each metric over batches, or workers, in their order."""
    totals: dict[str, tuple[float, float]] = {}
    for part in parts:
        for name, (total, count) in part.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + count)
    return totals


class Metrics:
    """Sums of metrics by name: numbers on a CPU; on a GPU they stay there, so that a step need not wait for them.

    Parameters
    ----------
    ops : Ops
        Kernels of the device.

    Attributes
    ----------
    counts : dict of str to float
        What each sum is divided by where it is shown.
    own_counts : set of str
        Metrics that are no means of batches: the layer counts what it sums, e.g. words.
    """

    def __init__(self, ops: Ops) -> None:
        self.ops = ops
        # by name, and by what their sum is multiplied with and divided by: done once, when they are taken
        self._totals: dict[tuple[str, float, float], Scalar] = {}
        self.counts: dict[str, float] = {}
        self.own_counts: set[str] = set()

    def add(self, name: str, value: Scalar, count: float | None, scale: float, n: float) -> None:
        """Add ``scale * value / n`` to a metric, and to its count."""
        key = (name, scale, n)
        self._totals[key] = self.ops.accumulate(value, self._totals.get(key, 0.0))
        self.count({name: 1.0 if count is None else count})
        if count is not None:
            self.own_counts.add(name)

    def count(self, more: Mapping[str, float]) -> None:
        """Add to counts."""
        for name, n in more.items():
            self.counts[name] = self.counts.get(name, 0.0) + n

    def take(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each metric since the last call, and reset them; waits for a GPU."""
        sums = dict.fromkeys(self.counts, 0.0)
        for key, total in self._totals.items():
            name, scale, n = key
            if name in sums:
                sums[name] += scale * self._number(total) / n
            # in place where it lies on a GPU: kernels that are repeated go on adding there
            self._totals[key] = self.ops.reset(total)
        taken = {name: (total, self.counts[name]) for name, total in sums.items()}
        self.counts.clear()
        return taken

    def state(self) -> dict[str, Any]:
        """Return the sums since the last `take` as plain values, for `restore`; waits for a GPU."""
        totals = [[*key, self._number(total)] for key, total in self._totals.items()]
        return {"totals": totals, "counts": dict(self.counts)} if self.counts else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue sums that `state` has returned."""
        self._totals = {(name, scale, n): total for name, scale, n, total in state["totals"]}
        self.counts = dict(state["counts"])

    def totals(self, wait: bool = True) -> Iterator[tuple[str, float]]:
        """Yield each name with an unscaled sum; without ``wait`` that of some steps ago, if a GPU is behind."""
        for (name, *_), total in self._totals.items():
            number = self._number(total) if wait else self.ops.poll(total)
            if number is not None:
                yield name, number

    def _number(self, total: Scalar) -> float:
        return float(self.ops.to_host(total).item())
