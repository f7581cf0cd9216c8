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
    """How the bridges of one worker reach those of the others."""

    def send(self, worker: int, key: str, arrays: Sequence[Array], names: Sequence[str]) -> None:
        """Hand arrays to another worker of the group; returns at once."""

    def receive(self, key: str) -> dict[str, Array]:
        """Return the oldest arrays with a key, by name; waits for them."""

    def has(self, key: str) -> bool:
        """Tell whether `receive` would not wait."""

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something has arrived that makes a condition true; ``what`` says what, for people."""


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
    states : dict of str to tuple of ndarray
        What layers, by name, keep from one batch to the next: hidden states, Gibbs chains.
    exchange : Exchange or None
        How layers on this worker reach those on other workers of the group, where a net is partitioned so.
    stream_start : bool
        Whether the batch begins its stream of records anew, so that a state of the batch before does not belong to it.
    cancellation : Cancellation
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
    states: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    stream_start: bool = False
    exchange: Exchange | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
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

    @property
    def param_dtype(self) -> np.dtype[Any]:
        """Type of what has to be exact: params, their gradients, statistics, losses; float32 with bfloat16."""
        return np.promote_types(self.dtype, np.float32)

    def classes_of(self, layer: str) -> tuple[str, ...]:
        """Return the names of the classes that an input layer reads; empty where they are not known."""
        return ()
