"""RecordReader: the open store and loader of an input layer, and its position. Mean and std of records."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from singa_dask.data import Loader, Store, detect, open_store
from singa_dask.data.loading.loader import Batch
from singa_dask.data.order.sampler import advanced
from singa_dask.data.stores.store import backends_holding
from singa_dask.gate import Gate
from singa_dask.layers.records import StoreConf, check_shape, in_layout, same_shape, stored_shape
from singa_dask.ops.contract import Array, DType


def read_statistic(conf: StoreConf, key: str, shape: Sequence[int], dtype: DType) -> Array | float | None:
    """Return mean or std: one record of the file, else the value, else None.

    Parameters
    ----------
    conf : StoreConf
    key : str
        ``"mean_file"`` or ``"std_file"``.
    shape : sequence of int
        Of a record, for the result.
    dtype : dtype

    Raises
    ------
    DataError
        The file cannot be read, or its records have another shape.
    """
    url = getattr(conf, f"{key.removesuffix('_file')}_file")
    value: float | None = getattr(conf, f"{key.removesuffix('_file')}_value")
    if not url:
        return value
    backend = detect(url, conf.storage_options) or conf.backend
    # there a line of text has no label, whatever the records have
    text = {"separator": conf.separator, "has_label": False} if backend in backends_holding("text") else {}
    with open_store(url, backend, conf.storage_options, **text) as store:
        arrays = store.read_block(0)
    record = (arrays["data"] if "data" in arrays else arrays["pixel"])[0]
    # one that is channels first, as shape says, is taken as it is, whatever the layout of the records
    if same_shape(record.shape, stored_shape(conf)) or not same_shape(record.shape, conf.shape):
        check_shape(url, record.shape, conf, "a record")
        record = in_layout(record[None], conf)[0]
    made: Array = record.reshape(shape).astype(dtype)
    return made


class RecordReader:
    """Reads the batches of an input layer; the store is opened when the first one is needed.

    Parameters
    ----------
    open_store : callable
        Returns the store, compared with the job.
    make_loader : callable
        (store) -> its loader.
    name : str
        Of the layer.
    gate : Gate
        Of the unit: once it is closed, every wait for records ends.
    """

    def __init__(
        self, open_store: Callable[[], Store], make_loader: Callable[[Store], Loader], name: str, gate: Gate
    ) -> None:
        self._open_store = open_store
        self._make_loader = make_loader
        self._store: Store | None = None
        self._loader: Loader | None = None
        self._cursor: Mapping[str, Any] | None = None
        self._n_ahead = 0
        self._given: Batch | None = None
        self._what = f"records of layer {name}"
        self._gate = gate
        gate.on_close(self._abort)

    def give(self, batch: Batch) -> None:
        """Set the batch that `next` returns, in place of one of the store."""
        self._given = batch

    def next(self) -> tuple[Batch, Array]:
        """Return the next batch, valid until the one after it, and the epoch of each of its records.

        Raises
        ------
        DataError
            The store cannot be opened or read, or holds other records.
        Aborted
            The job has ended.
        """
        if self._given is not None:
            batch, self._given = self._given, None
            return batch, np.zeros(len(batch.ids), np.int64)
        loader = self._loader or self._open()
        self._gate.waiting_for = (self._what, time.monotonic())
        batch = loader.next()
        self._gate.waiting_for = None
        return batch, loader.epochs()

    def _abort(self) -> None:
        """Wake whoever waits for records; called by the thread that closes the gate."""
        loader = self._loader
        if loader is not None:
            loader.abort()

    def _open(self) -> Loader:
        self._gate.waiting_for = (f"{self._what}: opens the store", time.monotonic())
        self._store = self._open_store()
        self._loader = self._make_loader(self._store)
        self._gate.waiting_for = None
        self._gate.check()  # closed meanwhile, it has not found the loader
        if self._cursor is not None:
            self._loader.seek(self._cursor)
        if self._n_ahead:
            self._loader.advance(self._n_ahead)
            self._n_ahead = 0
        return self._loader

    def read_ahead(self) -> None:
        """Open the store and begin to read, before the first batch is computed.

        Raises
        ------
        DataError
            The store cannot be opened, or holds other records.
        """
        (self._loader or self._open()).start()

    def wait(self) -> None:
        """Wait until the first batch after `read_ahead` is there, or reading has failed, as `next` will report.

        Raises
        ------
        Aborted
            The job ended meanwhile.
        """
        if self._loader is not None:
            self._gate.waiting_for = (self._what, time.monotonic())
            self._loader.wait()
            self._gate.waiting_for = None
            self._gate.check()

    def record_files(self, first: int, stop: int) -> list[str]:
        """Return the URL of the file of each of some records; empty unless the store is open and each has its own."""
        return self._store.record_files(first, stop) if self._store else []

    # -- what has been read -------------------------------------------------------------------------

    @property
    def wait_s(self) -> float:
        """Seconds that the net waited for records."""
        return self._loader.wait_s if self._loader else 0.0

    @property
    def epoch(self) -> float | None:
        """Passes over the records of the group so far, as a fraction; None before the first batch."""
        return self._loader.epoch if self._loader else None

    @property
    def bytes_read(self) -> int:
        """Bytes of the blocks that were read."""
        return self._loader.reader.bytes_read if self._loader else 0

    @property
    def bytes_local(self) -> int:
        """Bytes of the blocks that were read from this host."""
        return self._loader.reader.bytes_local if self._loader else 0

    @property
    def bad_records(self) -> int:
        """Bad records that the batches so far would have had, each once."""
        return len(self._loader.bad.records) if self._loader else 0

    def bad_ids(self) -> set[tuple[str, int]]:
        """Return store and index of each of these records."""
        return {(self._loader.store.url, record) for record in self._loader.bad.records} if self._loader else set()

    def take_bad(self, layer: str) -> list[dict[str, Any]]:
        """Return the bad records that were not returned before, as ``layer``, ``url``, ``block``, ``row``, ``reason``.

        A block that is bad as a whole comes once, without a row, with its ``rows``.
        """
        if self._loader is None:
            return []
        url = self._loader.store.url
        return [{"layer": layer, "url": url, **bad.facts()} for bad in self._loader.bad.take()]

    # -- the position -------------------------------------------------------------------------------

    def cursor(self) -> dict[str, Any] | None:
        """Return where the next batch begins; None if none was read."""
        if self._loader is not None:
            return self._loader.cursor()
        return advanced(self._cursor, self._n_ahead) if self._cursor is not None else None

    def seek(self, cursor: Mapping[str, Any]) -> None:
        """Go to the position that `cursor` returned.

        Raises
        ------
        DataError
            The records or their order are others now; at once, or at the first batch if the store is not open.
        """
        self._cursor, self._n_ahead = dict(cursor), 0
        if self._loader is not None:
            self._loader.seek(cursor)

    def advance(self, n_batches: int) -> None:
        """Skip some batches without reading them, or go back by some if the number is negative."""
        if self._loader is not None:
            self._loader.advance(n_batches)
        else:
            self._n_ahead += n_batches

    def close(self) -> None:
        """Close loader and store; the position stays."""
        self._cursor = self.cursor()
        if self._cursor is not None:
            self._n_ahead = 0
        if self._loader is not None:
            self._loader.close()
        if self._store is not None:
            self._store.close()
        self._loader = self._store = None
