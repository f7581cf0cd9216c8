"""Context: what all layers of one net share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.conf import Phase
from singa_dask.ops.contract import Array


class Exchange(Protocol):
    """How bridges send arrays to the other workers of the group."""

    def send(self, worker: int, key: str, arrays: Sequence[Array], names: Sequence[str]) -> None:
        """Send arrays to another worker of the group, without waiting."""

    def receive(self, key: str) -> dict[str, Array]:
        """Wait for the oldest arrays with a key, and return them by name."""

    def has(self, key: str) -> bool:
        """Return whether `receive` would not wait."""

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until arrivals make a condition true; ``what`` describes the wait in messages."""


@dataclass
class Context:
    """What all layers of one net share: its worker, seed and step.

    Attributes
    ----------
    phase : Phase
        TRAIN, VALIDATION or TEST: the phase that the net was built for.
    seed : int
        The job's seed; every random number is a function of the seed, a name and the step.
    dtype : dtype
        Of features and their gradients.
    worker, n_workers : int
        Place in the worker group; a batch is split over the group by rows.
    shares : tuple of int
        Proportions in which the workers of the group divide a batch; empty if the parts are equal.
    group, n_groups : int
        The worker group; groups read disjoint parts of the records.
    step : int
        Set by whoever runs the net, before each pass.
    states : dict of str to tuple of ndarray
        `Layer.state` by the name of the layer.
    exchange : Exchange or None
        How bridges reach the other workers of the group, in a partitioned net.
    stream_start : bool
        Whether the batch starts a new stream of records, so that layers must ignore their state.
    cancellation : Cancellation
        Where the threads of the unit wait for params, and see that the job has ended.
    frozen : bool
        Whether params never change after the first pass, so that layers may keep what they derived from them.
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
    states: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    stream_start: bool = False
    exchange: Exchange | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    frozen: bool = False

    @property
    def bridges(self) -> Exchange:
        """`exchange`; RuntimeError if the net is not partitioned over workers."""
        if self.exchange is None:
            raise RuntimeError(f"worker {self.worker}: it has no exchange. Expected one in a partitioned net.")
        return self.exchange

    @property
    def weight(self) -> float:
        """Weight of this worker's mean in the average over the workers of the group; 1 if all have equal parts."""
        return self.shares[self.worker] * self.n_workers / sum(self.shares) if self.shares else 1.0

    @property
    def param_dtype(self) -> np.dtype[Any]:
        """Dtype of params, their gradients, statistics and losses: float32 if `dtype` is bfloat16, else `dtype`."""
        return np.promote_types(self.dtype, np.float32)

    def classes_of(self, layer: str) -> tuple[str, ...]:
        """Return the class names of an input layer; empty if they are not known."""
        return ()
