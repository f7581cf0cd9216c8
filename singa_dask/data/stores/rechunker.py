"""Rows: records that come in chunks of any lengths, cut anew into chunks of the lengths that a writer wants.

So the bytes of a store do not depend on how its records came.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record import check_schema, schema_of
from singa_dask.data.stores.store import count_of
from singa_dask.data.types import Arrays, Records
from singa_dask.errors import DataError

__all__ = ["Rechunker"]


class Rechunker:
    """A stream of records.

    Parameters
    ----------
    url : str
        Where they are written to, for errors.
    records : dict of str to ndarray, or iterable of those
        Chunks without records are passed over.

    Attributes
    ----------
    schema : dict of str to Field
    record_bytes : int
    taken : int
        Records that `take` has returned so far.

    Raises
    ------
    DataError
        There are no records; also while they are taken: arrays have different lengths, chunks different schemas, or a
        label is no integer of 32 bits.
    """

    def __init__(self, url: str, records: Records) -> None:
        self._url = url
        self._chunks = iter([records] if isinstance(records, dict) else records)
        self._left: Arrays = {}
        self.taken = self._seen = 0
        first = self._next()
        if first is None:
            raise DataError(f"{url}: nothing to write.")
        self._left = first
        self.schema = schema_of(first)
        self.record_bytes = sum(field.size_bytes for field in self.schema.values())

    def take(self, n: int) -> Arrays | None:
        """Return the next ``n`` records, fewer at the end, None behind it; views where one chunk holds them."""
        parts: list[Arrays] = []
        missing = n
        while missing:
            chunk = self._left or self._next()
            if chunk is None:
                break
            check_schema(chunk, self.schema, self._url)
            length = len(next(iter(chunk.values())))
            used = min(missing, length)
            parts.append({name: array[:used] for name, array in chunk.items()})
            self._left = {name: array[used:] for name, array in chunk.items()} if used < length else {}
            missing -= used
        self.taken += n - missing
        if len(parts) < 2:
            return parts[0] if parts else None
        return {name: np.concatenate([part[name] for part in parts]) for name in self.schema}

    def chunks(self, n: int) -> Iterator[Arrays]:
        """Yield all records, ``n`` at a time."""
        while (rows := self.take(n)) is not None:
            yield rows

    def _next(self) -> Arrays | None:
        for chunk in self._chunks:
            if not chunk or any(map(len, chunk.values())):
                n = count_of(self._url, chunk)
                if "label" in chunk:
                    chunk = {**chunk, "label": as_labels(np.asarray(chunk["label"]), self._url, self._seen)}
                self._seen += n
                return chunk
        return None
