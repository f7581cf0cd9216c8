"""Values of layers for the records of stores, as an Arrow table."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.kept_columns import ColumnReading
from singa_dask.errors import ConfigError
from singa_dask.inference.output_decoder import OutputDecoder, chosen
from singa_dask.inference.tasks import TaskResult, filled_by
from singa_dask.inference.value_files import text_columns
from singa_dask.redaction import readable


@dataclass(frozen=True)
class Predicted:
    """The predictions of the records at one URL.

    Attributes
    ----------
    url : str
        The URL or path as the user wrote it.
    parts : sequence of TaskResult
        Results of the tasks, in the order of the records. With ``topk``, the result for each time step is pairs of
        class and probability, the likeliest class first.
    kept : pyarrow.Table
        Columns of the records that are written beside the predictions.
    first : int
        Index of the first record that is predicted. Earlier records of a time series serve only as history.
    n_ahead : int
        Number of records at the end that were predicted from earlier predictions, not from known values.
    has_types : bool
        Whether the format of the records stores the types of columns. CSV does not.
    """

    url: str
    parts: Sequence[TaskResult]
    kept: pa.Table
    first: int = 0
    n_ahead: int = 0
    has_types: bool = True

    @property
    def count(self) -> int:
        """Number of records."""
        return sum(len(done.arrays[0]["data"]) for done in self.parts)

    def with_threshold(self, threshold: float) -> Predicted:
        """Return the predictions reduced to one of two classes, chosen by a threshold."""
        parts = [
            done._replace(arrays=[{**each, "data": chosen(each["data"], threshold)} for each in done.arrays])
            for done in self.parts
        ]
        return replace(self, parts=parts)

    @property
    def files(self) -> list[str]:
        """Path or URL of the file of each record; empty if files contain several records.

        The paths are relative if ``url`` is relative.
        """
        files = [file for done in self.parts for file in done.files]
        if "://" in self.url or os.path.isabs(self.url):
            return files
        return [file if "://" in file else os.path.relpath(file) for file in files]

    @property
    def filled(self) -> FillCounts:
        """Number of missing values that were filled in, by column.

        A block that several tasks have read is counted once.
        """
        return filled_by(self.parts)


def _files(predicted: Predicted) -> pa.Array:
    """Return the file of each record, or the URL of the store if the record has no file of its own."""
    if files := predicted.files:
        return pa.array(map(readable, files), pa.string())
    return pa.repeat(readable(predicted.url), predicted.count)


def _numbers(predicted: Predicted) -> pa.Array:
    """Return the index of each record in its store; null for a record with a file of its own."""
    n, first = predicted.count, predicted.first
    return pa.nulls(n, pa.int64()) if predicted.files else pa.array(np.arange(first, first + n))


# column that identifies the record of a row -> function that computes the column
PLACES = {"file": _files, "record": _numbers}


def _place_names(predicted: Sequence[Predicted]) -> list[str]:
    """Return the names of the columns that identify the record of a row."""
    files = [each.files for each in predicted]
    return ["file"] * (len(predicted) > 1 or any(files)) + ["record"] * (not all(files))


def value_names(
    layers: Sequence[str], names: Sequence[Sequence[str]], sizes: Sequence[int], topk: int, others: Sequence[str]
) -> list[str]:
    """Return the names of the columns with the values of layers.

    A name that is not unique is prefixed by the name of its layer.

    Parameters
    ----------
    layers : sequence of str
        Names of the layers.
    names : sequence of sequence of str
        Classes, labels or targets of each layer.
    sizes : sequence of int
        Number of values of each layer.
    topk : int
        Number of likeliest classes to list for each record; 0 lists all values.
    others : sequence of str
        Names of the columns that precede the values.
    """
    best = [f"{name}_{i}" if i > 1 else name for i in range(1, topk + 1) for name in ("class", "number", "probability")]
    own = (
        [best] * len(layers)
        if topk
        else [
            list(known) if len(known) == n else list(map(str, range(n))) for known, n in zip(names, sizes, strict=True)
        ]
    )
    is_prefixed = len(layers) > 1 or not {*others}.isdisjoint(own[0])
    return [f"{layer}.{name}" if is_prefixed else name for layer, of in zip(layers, own, strict=True) for name in of]


def merge_kept(urls: Sequence[str], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the kept columns of all stores as one table.

    Raises
    ------
    ConfigError
        A column has different types in two stores, and no type can represent the values of both exactly.
    """
    merged = tables[0]
    for url, table in zip(urls[1:], tables[1:], strict=True):
        for name in table.column_names:
            here, there = table.select([name]), merged.select([name])
            try:
                pa.concat_tables([there, here], promote_options="permissive")
            except pa.ArrowException:
                raise ConfigError(
                    f"--keep: column {name!r} holds values of type {here.schema[0].type} in {url} and of type "
                    f"{there.schema[0].type} in {urls[0]}. Predict them separately."
                ) from None
        merged = pa.concat_tables([merged, table], promote_options="permissive")
    return merged


def read_kept(
    reading: ColumnReading, tables: Sequence[pa.Table], have_types: Sequence[bool], *, as_texts: bool = False
) -> list[pa.Table]:
    """Convert kept columns of CSV to the types in which the job reads them.

    Tables of formats with types are returned unchanged. With ``as_texts``, only columns of formatted numbers, such as
    money, are converted.
    """
    read = (reading.numbers if as_texts else reading.types)(
        [table for table, has_types in zip(tables, have_types, strict=True) if not has_types]
    )
    rest = iter(read)
    return [table if has_types else next(rest) for table, has_types in zip(tables, have_types, strict=True)]


class LayerValues(NamedTuple):
    """Values that layers compute for the records of some stores.

    Attributes
    ----------
    topk : int
        Number of highest values that are kept for each record; 0 keeps all values.
    stores : list of Predicted
    decoders : list of OutputDecoder
        A decoder for each layer.
    reading : ColumnReading
        How to read texts in kept columns.
    """

    topk: int
    stores: list[Predicted]
    decoders: list[OutputDecoder]
    reading: ColumnReading = ColumnReading()

    def table(self, *, as_texts: bool = False) -> pa.Table:
        """Return a table with a row for each record, or for each time step of a record.

        The columns:

        - ``file``, if records have their own files or there are several stores;
        - ``record``, the index of the record, unless each record has its own file;
        - the kept columns, and ``step`` if there are several time steps;
        - with ``topk``: ``class``, ``number`` and ``probability`` of the likeliest class, then ``class_2``, ... of the
        next likeliest class;
        - without ``topk``: one column for each label or target, with its name or number.

        With several layers, or if a kept column has one of these names, the name of the layer precedes the column name:
        ``species.class``. Values and probabilities are float32, exactly as the net computes them.

        Parameters
        ----------
        as_texts : bool
            Whether to return class names, and kept columns of CSV, as texts. By default, they have the types of their
            values.

        Raises
        ------
        ConfigError
            The layers have different numbers of time steps.
        """
        stores, layers = self.stores, [each.layer for each in self.decoders]
        values = [self._values(i, stores) for i in range(len(layers))]
        counts = {math.prod(each.shape[1:]) // (2 * self.topk) if self.topk else 1 for each in values}
        if len(counts) > 1:
            raise ConfigError(f"layers {', '.join(layers)} have different time steps. Predict them one by one.")
        n_steps = counts.pop()
        record = pa.array(np.repeat(np.arange(len(values[0])), n_steps))
        kept = self._kept(as_texts)
        places, sizes = _place_names(stores), [math.prod(each.shape[1:]) for each in values]
        columns = [pa.chunked_array(map(PLACES[name], stores)).take(record) for name in places]
        columns += kept.take(record).columns if kept.column_names else []
        columns += [pa.array(np.tile(np.arange(n_steps), len(values[0])))] * (n_steps > 1)
        for each, decoder in zip(values, self.decoders, strict=True):
            if not self.topk:
                columns += map(pa.array, each.reshape(len(each), math.prod(each.shape[1:])).T)
                continue
            classes = (replace(decoder, class_type="") if as_texts else decoder).classes.tolist()
            values_of = pa.array([readable(each) if isinstance(each, str) else each for each in classes])
            for numbers, scores in each.reshape(-1, self.topk, 2).transpose(1, 2, 0):
                indices = numbers.astype(np.int64)
                columns.append(values_of.take(pa.array(indices)))
                columns += map(pa.array, (indices, scores))
        names = [each.names for each in self.decoders]
        named = value_names(layers, names, sizes, self.topk, [*places, *kept.column_names])
        return pa.Table.from_arrays(columns, [*places, *kept.column_names, *["step"] * (n_steps > 1), *named])

    def _kept(self, as_texts: bool) -> pa.Table:
        kept = [table.slice(each.first) for each, table in zip(self.stores, self._read_kept(as_texts), strict=True)]
        return merge_kept([each.url for each in self.stores], list(map(text_columns, kept)) if as_texts else kept)

    def _read_kept(self, as_texts: bool) -> list[pa.Table]:
        """Return the kept columns of each store, including records that serve only as history.

        So these records also determine the types of the columns.
        """
        tables, have_types = [each.kept for each in self.stores], [each.has_types for each in self.stores]
        return read_kept(self.reading, tables, have_types, as_texts=as_texts)

    @property
    def texts(self) -> list[str]:
        """Names of kept CSV columns that stay texts, although the job does not read them as texts."""
        kept = zip(self.stores, self._read_kept(False), strict=True)
        names = [name for each, table in kept if not each.has_types for name in self.reading.unknown(table)]
        return list(dict.fromkeys(names))

    def array(self) -> npt.NDArray[np.float32]:
        """Return the values of the first layer for the records of the first store, (n, *shape)."""
        return self._values(0, self.stores[:1])

    def _values(self, layer: int, stores: Sequence[Predicted]) -> npt.NDArray[np.float32]:
        """Return the values of a layer for all records, (n, *shape)."""
        parts = [done.arrays[layer]["data"] for each in stores for done in each.parts]
        if parts:
            return np.concatenate(parts)
        decoder = self.decoders[layer]
        shape = (decoder.n_steps, *decoder.shape)[decoder.n_steps == 1 :]
        return np.empty((0, decoder.n_steps * 2 * self.topk) if self.topk else (0, *shape), np.float32)
