"""Param: an array of weights of a layer, with what its initial values are drawn from."""

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
        self.is_idle = False
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
