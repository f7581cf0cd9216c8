"""Param: an array of weights of a layer, and the distributions of initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.conf import InitConf, ParamConf
from singa_dask.layers.feature import Span
from singa_dask.ops.contract import Array, DType

ZEROS, ONES = (InitConf(type="Constant", value=value) for value in (0.0, 1.0))
ORTHOGONAL = InitConf(type="Orthogonal")


def glorot(fan_in: int, fan_out: int) -> InitConf:
    """Return the uniform distribution of Glorot and Bengio (2010): within sqrt(6 / (fan_in + fan_out)) of zero."""
    # round to few digits, because job files show this number
    bound = float(f"{math.sqrt(6 / (fan_in + fan_out)):.6g}")
    return InitConf(type="Uniform", low=-bound, high=bound)


class ParamShard(NamedTuple):
    """The part of a logical param that a partition of a layer has: a span of one axis."""

    part: int
    axis: int
    span: Span

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the whole param, given the shape of this part."""
        return (*shape[: self.axis], self.span.total, *shape[self.axis + 1 :])

    def of(self, values: Array) -> Array:
        """Return a view of this part of the whole param's values."""
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
        Not trained: ``grad`` holds the amount to subtract, and an update is ``data -= grad / n_sharers``, whatever the
        job's updater. So the workers of a group keep one average, saved in checkpoints like weights.
    shard : ParamShard, optional
        Which part of a logical param it is, if the layer is partitioned by features.

    Attributes
    ----------
    view : ParamShard or None
        Replaces ``shard`` if this process keeps the whole param, because layers use different parts of it.
    grad : ndarray, shape ``shape``
        Gradient of this sharer alone; RuntimeError if it has none, see `has_grad`.
    memory : ndarray, shape `memory_shape`
        The array that ``grad`` is a view of.
    initial : InitConf or None
        How to draw initial values that neither the job nor a checkpoint has; None if one of them must.
    is_idle : bool
        Its gradient is always 0 and has no memory; it still counts as a sharer.
    owner : Param
        The param whose values it uses; itself if it is not shared.
    version : int
        Number of updates of the values; -1 before they are initialised. Only the owner's is used.
    last_version : int
        `version` when the gradient was last sent.
    cancellation : Cancellation
        Where to wait for versions; shared by all params of a net. Only the owner's is used.
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
        self.is_idle = False
        self.initial: InitConf | None = None
        self.owner: Param = self
        self.version = -1
        self.last_version = -1
        self.cancellation = Cancellation()

    @property
    def key(self) -> str:
        """Name of this part of the param on the servers."""
        return self.key_of(self.name)

    def key_of(self, owner: str) -> str:
        """Return the name on the servers of this part of an owner's values."""
        return owner if self.shard is None else f"{owner}@{self.shard.part}"

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the logical param."""
        shard = self.shard or self.view
        return self.shape if shard is None else shard.shape(self.shape)

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape of the array that is kept and sent: of the part, or of the whole param if that is kept."""
        return self.shape if self.view is None else self.whole_shape

    @property
    def size(self) -> int:
        """Number of values of the array that is kept and sent."""
        return math.prod(self.memory_shape)

    @property
    def values(self) -> Array:
        """The owner's values, shape `memory_shape`, which units of one process may share; see `has_data`."""
        values = self.owner._data
        if values is None:
            raise RuntimeError(f"param {self.name!r}: it has no values. Expected them to be set or drawn first.")
        # A sharer may see the same values with another shape, as in SINGA.
        return values if values.shape == self.memory_shape else values.reshape(self.memory_shape)

    @property
    def has_data(self) -> bool:
        """Whether there are `values`."""
        return self.owner._data is not None

    @property
    def data(self) -> Array:
        """The values that the layer uses, shape ``shape``: `values`, or a part of them."""
        return self.values if self.view is None else self.view.of(self.values)

    @data.setter
    def data(self, values: Array) -> None:
        self.owner._data = values

    @classmethod
    def part_of(cls, owner: Param, like: Param) -> Param:
        """Return a param that keeps the same part of the owner's values as ``like``, on a worker without the owner."""
        shape = like.shape if like.shard else owner.whole_shape
        return cls(owner.name, shape, owner.conf, owner.dtype, owner.running_statistic, like.shard)

    def keep_whole(self) -> None:
        """Keep the whole param, and use a part of it."""
        self.view, self.shard = self.shard, None

    @property
    def has_grad(self) -> bool:
        """Whether it has a gradient: it is trained and not `is_idle`."""
        return self._grad is not None

    @property
    def grad(self) -> Array:
        if self._grad is None:
            raise RuntimeError(f"param {self.name!r}: it has no gradient. Expected a net that trains it.")
        return self._grad

    @grad.setter
    def grad(self, values: Array) -> None:
        if values is not self._grad:
            raise TypeError("grad = ... would not be sent. Write into its memory: grad[...] = ...")

    def swap_grad(self, values: Array) -> Array:
        """Let the gradient use other memory; return its memory before."""
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
        """Use the values of ``owner``, with a gradient of its own."""
        self.owner = owner.owner

    def wait(self, version: int) -> None:
        """Wait until the values have had ``version`` updates.

        Raises
        ------
        Aborted
            The job ended.
        """
        owner = self.owner
        if owner.version >= version:
            return
        what = "update" if version else "initial values"
        owner.cancellation.wait(lambda: owner.version >= version, f"{what} of param {owner.name}")

    def publish(self, version: int) -> None:
        """Wake threads that wait for ``version`` updates of the values."""
        owner = self.owner
        with owner.cancellation.condition:
            owner.version = max(version, owner.version)
            owner.cancellation.condition.notify_all()

    def __repr__(self) -> str:
        return f"Param({self.name!r}, {self.shape}, version={self.version})"
