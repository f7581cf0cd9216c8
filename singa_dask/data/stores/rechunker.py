"""Rechunker: passes records to a writer in chunks of its own size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_dask.data.codecs.labels import as_labels
from singa_dask.data.codecs.record_schema import check_schema, schema_of
from singa_dask.data.types import Arrays, Records
from singa_dask.errors import DataError


class Rechunker:
    """A stream of records that can be read in chunks of any size.

    Parameters
    ----------
    url : str
        URL at which the records are written. Error messages name it.
    records : dict of str to ndarray, or iterable of such dicts
        The records, or an iterable that yields them in chunks. Empty chunks are skipped.

    Attributes
    ----------
    url : str
    schema : dict of str to Field
    record_bytes : int
    taken : int
        Number of records returned by `take` so far.

    Raises
    ------
    DataError
        There are no records. `take` raises a `DataError` if the arrays of a chunk have different lengths, chunks have
        different schemas, or a label is not a 32-bit integer.
    """

    def __init__(self, url: str, records: Records) -> None:
        self.url = url
        self._chunks = iter([records] if isinstance(records, dict) else records)
        self._left: Arrays = {}
        self.taken = self._seen = 0
        first = self._next()
        if first is None:
            raise DataError(f"{url}: there are no records to write.")
        self._left = first
        self.schema = schema_of(first)
        self.record_bytes = sum(field.size_bytes for field in self.schema.values())

    def take(self, n: int) -> Arrays | None:
        """Return the next ``n`` records. At the end, return the remaining records, then None.

        The arrays are views if one chunk contains all of these records.
        """
        parts: list[Arrays] = []
        missing = n
        while missing:
            chunk = self._left or self._next()
            if chunk is None:
                break
            check_schema(chunk, self.schema, self.url)
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
        """Yield all records in chunks of ``n``."""
        while (rows := self.take(n)) is not None:
            yield rows

    def _next(self) -> Arrays | None:
        for chunk in self._chunks:
            if not chunk or any(map(len, chunk.values())):
                lengths = {name: len(array) for name, array in chunk.items()}
                if len(set(lengths.values())) != 1 or 0 in lengths.values():
                    raise DataError(
                        f"{self.url}: there are no records to write, or the arrays have different lengths: {lengths}."
                    )
                # a record of a single number has shape (1,)
                chunk = {
                    name: array[:, None] if array.ndim == 1 and name != "label" else array
                    for name, array in chunk.items()
                }
                if "label" in chunk:
                    chunk = {**chunk, "label": as_labels(np.asarray(chunk["label"]), self.url, self._seen)}
                self._seen += next(iter(lengths.values()))
                return chunk
        return None
