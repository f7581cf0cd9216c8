"""Train and test parts of one store, chosen by a rule, so that no records are copied.

The rule depends only on the index of a record in the store, or on its key. So every process chooses the same records.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Field
from singa_dask.conf.mistakes import Finding
from singa_dask.data.stores.store import Store
from singa_dask.data.stores.view_store import ViewStore
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

Rows = npt.NDArray[np.int64]


class SplitConf(Conf):
    """``split``: a layer reads only a part of the records of a store, the part to train on or to test on."""

    part: Literal["train", "test"]
    """Part that the layer reads."""
    test_share: float = Field(default=0.0, ge=0, lt=1)
    """Approximate share of the records to test on, drawn at random."""
    seed: Count = 0
    """Seed of the draw. Layers that read parts of one store need the same seed and the same test_share."""
    test_from: Count = 0
    """First record to test on, counted from 0: the test part is the end of a time series."""
    key: str = ""
    """Column of a table whose values are drawn, such as customer_id, so that all records of a value are in the same
    part. About test_share of the values are in the test part; records without a value are in the training part."""

    def rules(self) -> Iterator[Finding]:
        """Require exactly one rule."""
        if bool(self.test_share) == bool(self.test_from):
            yield ("test_share",), "expected either test_share, such as 0.2, or test_from, the number of a record."
        if self.test_from and self.key:
            yield ("key",), "expected test_share with it: the values of a key are drawn at random, and have no order."

    def rows(self, first: int, n: int) -> Rows:
        """Return which of the ``n`` records from ``first`` on belong to the part.

        The result has the offsets of these records from ``first``.
        """
        if self.test_from:
            is_test = np.arange(first, first + n) >= self.test_from
        else:
            # Philox generates four numbers per counter value: discard up to three, so that record i always gets number
            # i
            generator = np.random.Philox(key=self.seed)
            generator.advance(first // 4)
            drawn = generator.random_raw(n + first % 4)[first % 4 :]
            is_test = drawn < np.uint64(self.test_share * 2.0**64)
        return np.flatnonzero(is_test if self.part == "test" else ~is_test)

    def of_keys(self, keys: pa.Array) -> Rows:
        """Return the indices of the records that belong to the part, given a key for each record.

        Records with equal keys belong to the same part. A record whose key is null is never in the test part.
        """
        encoded = keys.dictionary_encode()
        sums = np.array([zlib.crc32(key.encode()) for key in encoded.dictionary.to_pylist()], np.uint64)
        # SplitMix64 hash: each bit of the key or seed flips half of all bits on average
        drawn = sums + np.uint64((self.seed << 32) + 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            drawn = (drawn ^ drawn >> np.uint64(shift)) * np.uint64(factor)
        drawn ^= drawn >> np.uint64(31)
        # the last entry is for records without a key, which are never test records
        is_drawn = np.append(drawn < np.uint64(self.test_share * 2.0**64), False)
        is_test = is_drawn[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return np.flatnonzero(is_test if self.part == "test" else ~is_test)


class SplitStore(ViewStore):
    """A part of the records of another store.

    A store of a table is not wrapped in this class. It chooses its records itself, because it computes e.g. means from
    them.

    Parameters
    ----------
    store : Store
        The store that contains all records. It is closed when this store is closed.
    conf : SplitConf

    Raises
    ------
    DataError
        The part has no records.
    """

    def __init__(self, store: Store, conf: SplitConf) -> None:
        if conf.key:
            raise DataError(f"{store.url}: split: key is for tables with named columns, in CSV, Parquet or JSON lines.")
        self._store, self.stores, self._conf = store, (store,), conf
        super().__init__(store.url, store.storage_options)

    def __reduce__(self) -> tuple[Any, ...]:
        return SplitStore, (self._store, self._conf)

    def index(self) -> None:
        store = self._store
        super().index()
        self.rounds_data, self.truncation = store.rounds_data, store.truncation
        rows = [self._conf.rows(int(store.starts[block.id]), block.n) for block in store.blocks]
        # omit blocks without a record of this part
        self._of_store = [i for i, chosen in enumerate(rows) if len(chosen)]
        self._rows = [rows[i] for i in self._of_store]
        self.blocks = tuple(
            dataclasses.replace(store.blocks[i], id=new, n=len(rows[i])) for new, i in enumerate(self._of_store)
        )
        if not self.blocks:
            raise DataError(
                f"{self.url}: none of its {store.count} records are in the {self._conf.part} part of split."
            )

    def widen(self) -> None:
        _ = self.fingerprint
        self._store.widen()

    # -- records -------------------------------------------------------------------------------------------

    def locate(self, block_id: int) -> tuple[Store, int]:
        return self._store, self._of_store[block_id]

    def change(self, block_id: int, arrays: Arrays) -> Arrays:
        return {name: values[self._rows[block_id]] for name, values in arrays.items()}

    def read_block(self, block_id: int, data: Sequence[memoryview] | None = None) -> Arrays:
        # some formats can read chosen records alone
        if data is None:
            return self._store.read_rows(self._of_store[block_id], self._rows[block_id])
        return self.decode(block_id, data)

    def read_rows(self, block_id: int, rows: npt.NDArray[np.int64]) -> Arrays:
        return self._store.read_rows(self._of_store[block_id], self._rows[block_id][rows])

    def salvage(self, block_id: int) -> tuple[Arrays, dict[int, str]]:
        arrays, bad = self._store.salvage(self._of_store[block_id])
        reasons = {at: bad[row] for at, row in enumerate(self._rows[block_id].tolist()) if row in bad}
        return self.change(block_id, arrays), reasons

    def place_of(self, block_id: int, row: int | None) -> tuple[int, int | None]:
        return self._of_store[block_id], None if row is None else int(self._rows[block_id][row])

    def named_error(self, block_id: int, error: Exception) -> DataError:
        return self._store.named_error(self._of_store[block_id], error)

    def record_files(self, first: int, stop: int) -> list[str]:
        return [file for n in self._numbers[first:stop].tolist() for file in self._store.record_files(n, n + 1)]

    @cached_property
    def _numbers(self) -> npt.NDArray[np.int64]:
        """Index in the other store of each record of this store."""
        starts = self._store.starts[self._of_store]
        return np.concatenate([start + rows for start, rows in zip(starts, self._rows, strict=True)])
