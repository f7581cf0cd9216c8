"""SplitConf: a rule that divides records into a part to train on and a part to test on.

The rule depends only on the index of a record in its store, or on its key. So every process chooses the same records.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Field
from singa_dask.conf.mistakes import Finding

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
