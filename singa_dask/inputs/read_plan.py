"""ReadPlan: which records of a store a worker reads, in which order, and in how much memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from singa_dask.data.loading import BadPolicy, Loader
from singa_dask.data.loading.memory_budget import MemoryBudget
from singa_dask.data.order import GroupRecords, Ids
from singa_dask.data.random import random_skip
from singa_dask.data.sampler import Sampler
from singa_dask.data.stores import Store
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers.site import ShardIndex


@dataclass
class ReadPlan:
    """Plan of one worker for reading the records of an input layer.

    Together, the workers of a group read each of the group's records once per epoch. Different groups read different
    records.

    Attributes
    ----------
    conf : StoreConf
    layer : str
        Name of the layer in the job.
    context : InputContext
    shard : ShardIndex
        Part of each batch that the worker reads.
    span : tuple of int, optional
        Range (start, stop) of records to read again and again, by default all records. If the range is a single
        batch, no batch is read ahead.
    consecutive : bool
        Whether each worker reads its own part of ``span``, instead of a part of each batch; see `Sampler`.
    n_skipped : int
        Number of records to skip at the start, in addition to ``random_skip``.
    warns : bool
        Whether to log the store's warnings when it is opened for reading, and a warning if the order of records makes
        reading slow.
    """

    conf: StoreConf
    layer: str
    context: InputContext
    shard: ShardIndex
    span: tuple[int, int] | None = None
    consecutive: bool = False
    n_skipped: int = 0
    warns: bool = True

    @property
    def batch_size(self) -> int:
        """Records per step of the whole worker group."""
        return sum(self.conf.batchsize)

    def own_rows(self) -> int:
        """Return the number of rows of a batch that this worker reads.

        Raises
        ------
        ConfigError
            ``batchsize`` cannot be divided among the workers.
        """
        sizes, n_workers = self.conf.batchsize, self.shard.count
        proportions = self._proportions or (1,) * n_workers
        parts = [each * self.batch_size // sum(proportions) for each in proportions]
        if self.batch_size % sum(proportions) or (len(sizes) > 1 and sizes != parts):
            message = f"expected a multiple of the {n_workers} workers of a group, got {sizes[0]}. "
            message += f"Set {-(-sizes[0] // n_workers) * n_workers}."
            if n_workers == 1:
                message = f"expected one number, for this layer has no partition_dim: 0, got {sizes}."
            elif len(sizes) > 1 or self.context.proportions:
                ratios = f"in the proportions {' : '.join(map(str, proportions))}"
                message = f"expected a number for each of the {n_workers} workers of a group, {ratios}, got {sizes}."
            raise ConfigError(Problem(("store_conf", "batchsize"), message))
        return parts[self.shard.index]

    @property
    def _proportions(self) -> Sequence[int]:
        """Proportions in which workers divide a batch; empty if all parts are equal."""
        return self.context.proportions if self.shard.count > 1 else ()

    def steps_per_epoch(self, n_records: int, batch_size: int = 0) -> Fraction:
        """Return how many batches all worker groups together need to read ``n_records`` once."""
        size = batch_size or self.batch_size
        return GroupRecords.steps_per_epoch(n_records, size, self.context.n_groups, self.conf.last_batch)

    def order(self, sizes: Sequence[int], fingerprint: str, runs: Sequence[int] | Ids | None = None) -> Sampler:
        """Return the order in which the group reads a store; see `Sampler` for the arguments."""
        conf, context = self.conf, self.context
        return Sampler(
            sizes,
            self.batch_size,
            conf.shuffle,
            context.seed,
            group=context.group,
            n_groups=context.n_groups,
            window=conf.window,
            assignment=context.assignments.get(self.layer),
            runs=None if runs is None else np.asarray(runs, np.int64),
            skip=random_skip(context.seed, self.layer, context.group, conf.random_skip) + self.n_skipped,
            fingerprint=fingerprint,
            last_batch=conf.last_batch,
            proportions=self._proportions,
            span=self.span,
            consecutive=self.consecutive,
        )

    def _order_of(self, store: Store) -> Sampler:
        return self.order([block.n for block in store.blocks], store.fingerprint, store.runs)

    def _memory(self) -> dict[str, Any]:
        """Return the arguments of `MemoryBudget` and `Loader` that determine the memory of a loader."""
        conf = self.conf
        return {
            "n_workers": self.shard.count,
            "prefetch": self.span is None or self.span[1] - self.span[0] > self.batch_size,
            "bytes_bound": None if conf.memory_mb is None else conf.memory_mb << 20,
            "share": self.context.reader_bytes,
            "in_flight_bytes": conf.in_flight_mb << 20,
        }

    def check_memory(self, store: Store) -> None:
        """Raise a `DataError` if the memory of this process is too small for a loader of the store."""
        if self.context.reader_bytes is not None:
            MemoryBudget(store, self._order_of(store), **self._memory())

    def make_loader(self, store: Store, name: str) -> Loader:
        """Return a loader of the worker's records. ``name`` names its thread."""
        conf, context = self.conf, self.context
        return Loader(
            store,
            self._order_of(store),
            self.shard.index,
            **self._memory(),
            name=name,
            policy=BadPolicy(conf.on_error, conf.max_bad, conf.labels, context.seed),
            host_names=context.host_names,
            n_io_threads=conf.io_threads,
            warns=self.warns,
        )
