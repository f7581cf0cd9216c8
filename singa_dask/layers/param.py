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
NORMAL = InitConf(type="Gaussian", std=0.02)
"""Initial values of positions and class tokens."""


def glorot(fan_in: int, fan_out: int) -> InitConf:
    """Return the uniform distribution of Glorot and Bengio (2010), between -r and r.

    r = sqrt(6 / (fan_in + fan_out)).
    """
    # round to few digits, because job files show this number
    bound = float(f"{math.sqrt(6 / (fan_in + fan_out)):.6g}")
    return InitConf(type="Uniform", low=-bound, high=bound)


class ParamShard(NamedTuple):
    """A shard of a param that is divided among workers: a span of indices along one axis."""

    part: int
    axis: int
    span: Span

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the whole param, given the shape of this shard."""
        return (*shape[: self.axis], self.span.total, *shape[self.axis + 1 :])

    def of(self, values: Array) -> Array:
        """Return a view of this shard, given the values of the whole param."""
        part: Array = values[(slice(None),) * self.axis + (slice(self.span.start, self.span.stop),)]
        return part


class Param:
    """One array of weights of a layer.

    Parameters
    ----------
    name : str
        Name of the param, unique in the net.
    shape : sequence of int
    conf : ParamConf
        Initialiser, ``lr_scale``, ``wd_scale`` and ``share_from``.
    dtype : dtype
        float32 in training, float64 in gradient checks.
    running_statistic : bool
        Whether the layer updates the param itself, as BatchNorm does with its mean. ``grad`` then has the amount to
        subtract: an update is ``data -= grad / n_sharers``, with any updater of the job. All workers of a group
        therefore have the same statistic. Checkpoints contain it like weights.
    shard : ParamShard, optional
        The shard of the whole param that this object has, if the layer is partitioned by features.

    Attributes
    ----------
    view : ParamShard or None
        The shard that this layer uses, if this process stores the whole param because its layers use different shards.
        ``shard`` is then None.
    grad : ndarray, shape ``shape``
        Gradient that this layer computes. Other layers that share the values have gradients of their own. Reading
        ``grad`` raises RuntimeError if the param has no gradient; see `has_grad`.
    memory : ndarray, shape `memory_shape`
        The array that ``grad`` is a view of.
    initial : InitConf, ndarray or None
        Initial values, or their distribution, used if neither the job nor a checkpoint sets them. If None, the job or a
        checkpoint must set them.
    is_idle : bool
        Whether the gradient is always 0 and has no memory. The param still counts as one of the sharers of its values.
    trains : bool
        Whether updates change the values, if the layer learns. If False, the param has no gradient.
    owner : Param
        The param whose values this param uses; the param itself if it does not share.
    version : int
        Number of updates of the values; -1 before they are initialised. Only the owner's version is used.
    last_version : int
        Value of `version` when the gradient was last sent.
    cancellation : Cancellation
        Object on which threads wait for versions. All params of a net share it. Only the owner's object is used.
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
        self.trains = True
        self.initial: InitConf | Array | None = None
        self.owner: Param = self
        self.version = -1
        self.last_version = -1
        self.cancellation = Cancellation()

    @property
    def key(self) -> str:
        """Name of this shard of the param on the servers."""
        return self.key_of(self.name)

    def key_of(self, owner: str) -> str:
        """Return the name of this param's values on the servers, given the name of its owner."""
        return owner if self.shard is None else f"{owner}@{self.shard.part}"

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the whole param, all shards together."""
        shard = self.shard or self.view
        return self.shape if shard is None else shard.shape(self.shape)

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape of the array that this process stores and sends: the shard, or the whole param."""
        return self.shape if self.view is None else self.whole_shape

    @property
    def size(self) -> int:
        """Number of values of the array that this process stores and sends."""
        return math.prod(self.memory_shape)

    @property
    def values(self) -> Array:
        """The owner's values, shape `memory_shape`. Units of one process may share this array."""
        values = self.owner._data
        if values is None:
            raise RuntimeError(f"param {self.name!r} has no values. Set or draw them first.")
        # as in SINGA, a param that shares values may have another shape than their owner
        return values if values.shape == self.memory_shape else values.reshape(self.memory_shape)

    @property
    def has_data(self) -> bool:
        """Whether `values` has memory."""
        return self.owner._data is not None

    @property
    def data(self) -> Array:
        """The values that the layer uses, shape ``shape``: all of `values`, or a view of a shard."""
        return self.values if self.view is None else self.view.of(self.values)

    @data.setter
    def data(self, values: Array) -> None:
        self.owner._data = values

    @classmethod
    def part_of(cls, owner: Param, like: Param) -> Param:
        """Return a param for the same shard as ``like``, on a worker that does not have the owner.

        The param uses the owner's values.
        """
        shape = like.shape if like.shard else owner.whole_shape
        return cls(owner.name, shape, owner.conf, owner.dtype, owner.running_statistic, like.shard)

    def keep_whole(self) -> None:
        """Store the whole param, and let the layer use a view of its shard."""
        self.view, self.shard = self.shard, None

    @property
    def needs_grad(self) -> bool:
        """Whether the param has a gradient if its layer learns."""
        return self.trains and not self.is_idle

    @property
    def has_grad(self) -> bool:
        """Whether the param has memory for a gradient: its layer learns, and `needs_grad` is true."""
        return self._grad is not None

    @property
    def grad(self) -> Array:
        if self._grad is None:
            raise RuntimeError(f"param {self.name!r} has no gradient. Only a net that trains the param has one.")
        return self._grad

    @grad.setter
    def grad(self, values: Array) -> None:
        if values is not self._grad:
            raise TypeError("grad = ... would not be sent. Write into its memory: grad[...] = ...")

    def swap_grad(self, values: Array) -> Array:
        """Use ``values`` as the memory of the gradient, and return the memory used before."""
        before, self._grad = self.grad, values
        return before

    @property
    def memory(self) -> Array:
        if self._memory is None:
            raise RuntimeError(f"param {self.name!r} has no gradient. Only a net that trains the param has one.")
        return self._memory

    def allocate_grad(self, zeros: Callable[..., Array]) -> None:
        """Allocate the gradient, unless it exists; ``zeros`` allocates zeros, given shape and dtype."""
        if self._grad is None:
            self._memory = zeros(self.memory_shape, self.dtype)
            self._grad = self._memory if self.view is None else self.view.of(self._memory)

    def share(self, owner: Param) -> None:
        """Use the values of ``owner``. The param keeps a gradient of its own."""
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
