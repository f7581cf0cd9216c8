"""Context: the values that all layers of one net share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.conf import Phase
from singa_dask.ops.contract import Array


class Exchange(Protocol):
    """The interface through which bridges send arrays to other workers of the group."""

    def send(self, worker: int, key: str, arrays: Sequence[Array], names: Sequence[str]) -> None:
        """Send arrays to another worker of the group, without waiting."""

    def receive(self, key: str) -> dict[str, Array]:
        """Wait for arrays with this key, and return the oldest message as a dict of arrays by name."""

    def has(self, key: str) -> bool:
        """Return whether arrays with this key have arrived, so that `receive` would not wait."""

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until ``condition()`` is true. The condition is checked when arrays arrive.

        ``what`` describes the wait in messages.
        """


@dataclass
class Context:
    """The values that all layers of one net share, such as worker, seed and step.

    Attributes
    ----------
    phase : Phase
        The phase that the net was built for: TRAIN, VALIDATION or TEST.
    seed : int
        The job's seed. Every random number is a function of the seed, a name and the step.
    dtype : dtype
        Data type of features and their gradients.
    worker, n_workers : int
        Index of this worker in its group, and the number of workers in the group. The rows of a batch are divided among
        the workers.
    proportions : tuple of int
        Proportions in which a batch is divided among the workers of the group. Empty if all workers get equal parts.
    group, n_groups : int
        Index of the worker group, and number of groups. Groups read disjoint parts of the records.
    step : int
        The current step. The caller sets it before each pass through the net.
    states : dict of str to tuple of ndarray
        `Layer.state` of each layer, by the name of the layer.
    exchange : Exchange or None
        Sends arrays between the workers of the group. None if the net is not partitioned over workers.
    stream_start : bool
        Whether the batch starts a new stream of records. Layers must then ignore their state.
    cancellation : Cancellation
        Wakes threads of the unit that wait for params when the job ends.
    frozen : bool
        Whether params do not change after the first pass. Layers may then keep arrays that they have computed from
        params.
    """

    phase: Phase = Phase.TRAIN
    seed: int = 0
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float32))
    worker: int = 0
    n_workers: int = 1
    proportions: tuple[int, ...] = ()
    group: int = 0
    n_groups: int = 1
    step: int = 0
    states: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    stream_start: bool = False
    exchange: Exchange | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    frozen: bool = False

    @property
    def bridges(self) -> Exchange:
        """The ``exchange``. Raises RuntimeError if the net is not partitioned over workers."""
        if self.exchange is None:
            raise RuntimeError(f"worker {self.worker} has no exchange. A partitioned net needs one.")
        return self.exchange

    @property
    def weight(self) -> float:
        """Weight of this worker's mean in the average over the group; 1 if all parts of the batch are equal."""
        return self.proportions[self.worker] * self.n_workers / sum(self.proportions) if self.proportions else 1.0

    @property
    def param_dtype(self) -> np.dtype[Any]:
        """Dtype of params, their gradients, statistics and losses: `dtype`, or float32 for bfloat16."""
        return np.promote_types(self.dtype, np.float32)

    def classes_of(self, layer: str) -> tuple[str, ...]:
        """Return the class names of an input layer; empty if they are not known."""
        return ()
