"""Param: one named array of weights, its gradient and its version; Gate: where threads wait for versions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from singa_dask.conf import ParamConf
from singa_dask.errors import Aborted

__all__ = ["Gate", "Param"]


class Gate:
    """Where the threads of one net wait for versions of their params; closing it frees them all."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self._reason = ""

    def close(self, reason: str) -> None:
        """End every present and future wait with `Aborted`."""
        with self.condition:
            self._reason = reason or "closed"
            self.condition.notify_all()

    def check(self) -> None:
        """Raise `Aborted` if the gate is closed."""
        if self._reason:
            raise Aborted(self._reason)


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
    statistic : bool
        Not trained: ``grad`` is what the values are too large by, and an update is ``data -= grad / n_sharers``,
        whatever the job's updater. So the workers of a group keep one average, which is in checkpoints like weights.

    Attributes
    ----------
    grad : ndarray, shape ``shape``
        Gradient of this sharer alone; None until allocated.
    owner : Param
        The param whose values these are; itself when it is not shared.
    version : int
        Updates that the values have seen; -1 before they are initialised. The owner's counts.
    last_version : int
        `version` when the gradient was last sent.
    gate : Gate
        Where to wait for versions; all params of a net use one. The owner's counts.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        conf: ParamConf,
        dtype: np.dtype[Any] | type = np.float32,
        statistic: bool = False,
    ) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.conf = conf
        self.dtype = np.dtype(dtype)
        self.statistic = statistic
        self._data: Any = None
        self.grad: Any = None
        self.owner: Param = self
        self.version = -1
        self.last_version = -1
        self.gate = Gate()

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def data(self) -> Any:
        """Values, shape ``shape``: the owner's memory, which units of one process may share. None until given."""
        data = self.owner._data
        # A sharer may see the same values in another shape, as SINGA allows.
        return data if data is None or data.shape == self.shape else data.reshape(self.shape)

    @data.setter
    def data(self, values: Any) -> None:
        self.owner._data = values

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
        with owner.gate.condition:
            while owner.version < version:
                owner.gate.check()
                owner.gate.condition.wait()

    def publish(self, version: int) -> None:
        """Say that the values have now seen ``version`` updates."""
        owner = self.owner
        with owner.gate.condition:
            owner.version = max(version, owner.version)
            owner.gate.condition.notify_all()

    def __repr__(self) -> str:
        return f"Param({self.name!r}, {self.shape}, version={self.version})"
