"""StoreReader: an input layer that reads batches from a store, and keeps its position and counters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from singa_dask.conf import LayerConf
from singa_dask.data.loading import Loader
from singa_dask.data.loading.batch_reader import Batch
from singa_dask.data.sampler import advanced
from singa_dask.data.stores import Store
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.types import Arrays
from singa_dask.inputs.input import InputLayer
from singa_dask.inputs.input_context import InputContext
from singa_dask.inputs.record_source import RecordSource
from singa_dask.layers.site import LayerSite
from singa_dask.ops.contract import Array


class StoreReader(InputLayer):
    """An input layer that reads batches from a store. The store is opened for the first batch."""

    context: InputContext
    source: RecordSource
    mixing = (0.0, 0.0)
    """Parameters ``mixup`` and ``cutmix`` of the job; both are 0 if records are not mixed."""
    counts_filled = False
    """Whether to count the missing values that the store fills in."""

    def __init__(self, conf: LayerConf, context: InputContext, site: LayerSite | None = None) -> None:
        super().__init__(conf, context, site)
        self._store: Store | None = None
        self._loader: Loader | None = None
        self._cursor: Mapping[str, Any] | None = None
        self._n_ahead = 0
        self._fed: Batch | None = None
        self._filled: dict[int, FillCounts] = {}

    def make_loader(self, store: Store) -> Loader:
        """Return a loader that reads this worker's records from a store."""
        raise NotImplementedError

    def feed(self, arrays: Arrays, first: int = 0) -> None:
        """Set the records of the next batch, instead of reading them from the store.

        Parameters
        ----------
        arrays : dict of str to ndarray, (N, ...)
            Fields of the records, in the form that `parse` expects. Labels are class numbers of the net.
        first : int
            Index of the first record.
        """
        n = len(next(iter(arrays.values())))
        self._fed = Batch(arrays, np.arange(first, first + n))

    def next_batch(self) -> tuple[Batch, Array]:
        """Return the next batch, and the epoch of each of its records.

        The batch is valid until the next call.

        Raises
        ------
        DataError
            The store cannot be opened or read, or its records do not fit the job.
        Aborted
            The job has ended.
        """
        if self._fed is not None:
            batch, self._fed = self._fed, None
            return batch, np.zeros(len(batch.ids), np.int64)
        loader = self._loader or self._open()
        with self._waiting():
            batch = loader.next()
        return batch, loader.epochs()

    def _waiting(self, what: str = "") -> AbstractContextManager[None]:
        """Return a context that records, in the net's cancellation, that this thread waits for records."""
        return self.context.cancellation.waiting(f"records of layer {self.conf_name}{what}")

    def _abort(self) -> None:
        """Wake threads that wait for records. Called by the thread that cancels the unit."""
        loader = self._loader
        if loader is not None:
            loader.abort()

    def _open(self) -> Loader:
        try:
            with self._waiting(": opens the store"):
                self._store = self.source.open_checked()
                if self.counts_filled:
                    scaling = self.context.knowledge.scaling_of(self.conf_name)
                    self._filled = self._store.begin_counting(scaling)
                self._loader = self.make_loader(self._store)
            self.context.cancellation.on_cancel(self._abort)
            self.context.cancellation.check()
            if self._cursor is not None:
                self._loader.seek(self._cursor)
            self._loader.advance(self._n_ahead)
        except BaseException:
            self._close_store()
            raise
        self._n_ahead = 0
        return self._loader

    def read_ahead(self) -> None:
        """Open the store and start to read, before the first batch is needed.

        Raises
        ------
        DataError
            The store cannot be opened, or its records do not fit the job.
        """
        (self._loader or self._open()).start()

    def wait_for_batch(self) -> None:
        """Wait until the first batch after `read_ahead` was read.

        If reading fails, `next_batch` reports it.

        Raises
        ------
        Aborted
            The job has ended.
        """
        if self._loader is not None:
            with self._waiting():
                self._loader.wait()
            self.context.cancellation.check()

    def record_files(self, first: int, stop: int) -> list[str]:
        """Return the URL of the file of each record from ``first`` to ``stop``.

        The result is empty if the store is closed, or if a file can hold several records.
        """
        return self._store.record_files(first, stop) if self._store else []

    def filled(self) -> dict[int, FillCounts]:
        """Return, by block, how many missing values the store has filled in; see `Store.begin_counting`."""
        return dict(self._filled)

    # -- statistics ---------------------------------------------------------------------------------

    @property
    def wait_s(self) -> float:
        """Seconds that the net waited for records."""
        return self._loader.wait_s if self._loader else 0.0

    @property
    def epoch(self) -> float | None:
        return self._loader.epoch if self._loader else None

    @property
    def bytes_read(self) -> int:
        """Number of bytes in the blocks that were read."""
        return self._loader.reader.bytes_read if self._loader else 0

    @property
    def bytes_local(self) -> int:
        """Number of bytes in the blocks that were read from this host."""
        return self._loader.reader.bytes_local if self._loader else 0

    def bad_ids(self) -> set[tuple[str, int]]:
        """Return (store, index) of each bad record that was replaced in the batches so far."""
        return {(self._loader.store.url, record) for record in self._loader.bad.records} if self._loader else set()

    def take_bad(self) -> list[dict[str, Any]]:
        """Return the bad records since the previous call.

        Each record is a dict with ``layer``, ``url``, ``block``, ``row`` and ``reason``. A block that is bad as a whole
        is a single dict, which has the number of its ``rows`` instead of ``row``.
        """
        if self._loader is None:
            return []
        url = self._loader.store.url
        return [{"layer": self.conf_name, "url": url, **bad.facts()} for bad in self._loader.bad.take()]

    # -- the position in the data -------------------------------------------------------------------

    def cursor(self) -> dict[str, Any] | None:
        if self._loader is not None:
            return self._loader.cursor()
        return advanced(self._cursor, self._n_ahead) if self._cursor is not None else None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Continue at a position that `cursor` has returned.

        Raises
        ------
        DataError
            The records or their order have changed. Raised at the first batch if the store is not open yet.
        """
        self._cursor, self._n_ahead = dict(cursor), 0
        if self._loader is not None:
            self._loader.seek(cursor)

    def advance(self, n_batches: int) -> None:
        if self._loader is not None:
            self._loader.advance(n_batches)
        else:
            self._n_ahead += n_batches

    @property
    def store(self) -> Store | None:
        """The store, or None if it is not open."""
        return self._store

    def close(self) -> None:
        """Close loader and store, but keep the position."""
        self._cursor = self.cursor()
        if self._cursor is not None:
            self._n_ahead = 0
        self._close_store()

    def _close_store(self) -> None:
        self.context.cancellation.off_cancel(self._abort)
        if self._loader is not None:
            self._loader.close()
        if self._store is not None:
            self._store.close()
        self._loader = self._store = None
        self._filled = {}
