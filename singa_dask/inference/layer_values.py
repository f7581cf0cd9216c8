"""Values of layers for the records of stores, as rows of text or an Arrow table."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.data.codecs.class_values import BOOLEAN, LabelReading, classes_of
from singa_dask.data.codecs.columns import as_texts, column_kind, whole
from singa_dask.data.codecs.fill_counts import FillCounts
from singa_dask.data.codecs.table_facts import BOOLEANS
from singa_dask.errors import ConfigError
from singa_dask.inference.tasks import TaskResult, filled_by
from singa_dask.net import NeuralNet
from singa_dask.redaction import readable


@dataclass(frozen=True)
class Predicted:
    """The predictions of the records at one URL.

    Attributes
    ----------
    url : str
        As given by the user.
    parts : sequence of TaskResult
        In the order of the records. With ``topk`` a time step has pairs of class and probability, the likeliest first.
    kept : pyarrow.Table
        Columns of the records to write beside the predictions.
    first : int
        Number of the first record that is predicted: earlier ones are only history.
    n_ahead : int
        Number of records at the end that were predicted from predictions.
    """

    url: str
    parts: Sequence[TaskResult]
    kept: pa.Table
    first: int = 0
    n_ahead: int = 0

    @property
    def count(self) -> int:
        """Number of records."""
        return sum(len(done.arrays[0]["data"]) for done in self.parts)

    @property
    def files(self) -> list[str]:
        """Path or URL of the file of each record, relative if ``url`` is; empty unless each record has its own file."""
        files = [file for done in self.parts for file in done.files]
        if "://" in self.url or os.path.isabs(self.url):
            return files
        return [file if "://" in file else os.path.relpath(file) for file in files]

    @property
    def filled(self) -> FillCounts:
        """Numbers of values that were filled in."""
        return filled_by(self.parts)


def _place_names(predicted: Sequence[Predicted]) -> list[str]:
    """Return the names of the columns that identify the record of a row."""
    files = [each.files for each in predicted]
    return ["file"] * (len(predicted) > 1 or any(files)) + ["record"] * (not all(files))


def value_names(
    layers: Sequence[str], names: Sequence[Sequence[str]], sizes: Sequence[int], topk: int, others: Sequence[str]
) -> list[str]:
    """Return the names of the columns with the values of layers, prefixed by the layer's name if they are not unique.

    ``names`` are the classes, labels or targets of each layer, ``sizes`` its numbers of values, and ``others`` the
    columns before them.
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


def csv_lines(rows: Iterable[Sequence[str]], delimiter: str = ",") -> Iterator[str]:
    """Yield each row as a line of CSV: RFC 4180, but lines end with LF."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(map(readable, row))
        yield line.getvalue()


def as_text_columns(table: pa.Table) -> pa.Table:
    """Return columns whose values all have a text: lists, structs and maps become JSON.

    Raises
    ------
    ConfigError
        Values have no exact text, such as bytes that are not UTF-8, or durations, whose unit would be lost.
    """
    for at, (name, column) in enumerate(zip(table.column_names, table.columns, strict=True)):
        try:
            values = whole(column)
            if pa.types.is_nested(values.type):
                texts = [value if value is None else _as_json(value) for value in values.to_pylist()]
                table = table.set_column(at, name, pa.array(texts, pa.string()))
            elif pa.types.is_duration(values.type):
                raise ValueError
            elif column_kind(values.type) not in ("number", "boolean", "string", "empty"):
                as_texts(values)
        except (pa.ArrowException, TypeError, ValueError):
            raise ConfigError(
                f"--keep: column {name!r} holds values of type {column.type}, which CSV cannot hold. Write Parquet: "
                "--out NAME.parquet."
            ) from None
    return table


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


class LayerValues(NamedTuple):
    """Values that layers compute for the records of some stores.

    Attributes
    ----------
    topk : int
        Number of values kept of each record, the highest ones; 0 for all.
    stores : list of Predicted
    class_names : tuple of tuple of str
        Names of the classes, labels or targets of each layer; empty where they have none.
    net : NeuralNet
        Shapes only.
    class_types : tuple of str
        Type of the values that the names of each layer's classes stand for, see `label_type`; may be empty.
    labels : LabelReading
        Type of kept columns of labels.
    """

    layers: tuple[str, ...]
    topk: int
    stores: list[Predicted]
    class_names: tuple[tuple[str, ...], ...]
    net: NeuralNet
    class_types: tuple[str, ...] = ()
    labels: LabelReading = LabelReading()

    def rows(self) -> Iterator[list[str]]:
        """Yield the names of the columns, then a row for each record, or for each time step of a record.

        The columns:

        - ``file``, if records have their own files or there are several stores;
        - ``record``, the index of the record, unless all records have their own files;
        - the kept columns, and ``step`` if there are several time steps;
        - with ``topk``: ``class``, ``number`` and ``probability`` of the likeliest class, ``class_2``, ... of the next;
          else one for each label or target, with its name or number.

        With several layers, or if a kept column has such a name, the layer's name comes first: ``species.class``.

        Raises
        ------
        ConfigError
            The layers differ in their time steps.
        """
        table, kept = self._table(are_texts=True), self.stores[0].kept.column_names
        yield table.column_names
        digits, columns = "6" if self.topk else "7", list[list[str]]()
        for name, column in zip(table.column_names, table.columns, strict=True):
            if pa.types.is_floating(column.type) and name not in kept:
                columns.append([f"{value:.{digits}g}" for value in column.to_pylist()])
            else:
                columns.append(as_texts(whole(column)).fill_null("").to_pylist())
        yield from map(list, zip(*columns, strict=True))

    def table(self) -> pa.Table:
        """Return the same columns as an Arrow table, with numbers, classes and kept columns in their types."""
        return self._table(are_texts=False)

    def _table(self, are_texts: bool) -> pa.Table:
        """Return the table, with the names of classes instead of their values if they are to be texts."""
        stores, layers = self.stores, range(len(self.layers))
        values = [self._values(i, stores) for i in layers]
        counts = {math.prod(each.shape[1:]) // (2 * self.topk) if self.topk else 1 for each in values}
        if len(counts) > 1:
            raise ConfigError(f"layers {', '.join(self.layers)} have different time steps. Predict them one by one.")
        n_steps = counts.pop()
        record = pa.array(np.repeat(np.arange(len(values[0])), n_steps))
        kept = pa.concat_tables([each.kept.slice(each.first) for each in stores], promote_options="permissive")
        kept = kept if are_texts else self.labels.read(kept)
        place = {
            "file": [readable(name) for each in stores for name in each.files or [each.url] * each.count],
            "record": [None if each.files else each.first + i for each in stores for i in range(each.count)],
        }
        types = {"file": pa.string(), "record": pa.int64()}
        places, sizes = _place_names(stores), [math.prod(each.shape[1:]) for each in values]
        columns = [pa.array(place[name], types[name]).take(record) for name in places]
        columns += kept.take(record).columns if kept.column_names else []
        columns += [pa.array(np.tile(np.arange(n_steps), len(values[0])))] * (n_steps > 1)
        class_types = self.class_types or ("",) * len(self.layers)
        for each, names, of_type in zip(values, self.class_names, class_types, strict=True):
            if not self.topk:
                columns += map(pa.array, each.reshape(len(each), math.prod(each.shape[1:])).T.astype(np.float64))
            for numbers, scores in each.reshape(-1, self.topk, 2).transpose(1, 2, 0) if self.topk else ():
                indices = numbers.astype(np.int64)
                # older checkpoints do not have the type
                of_type = of_type or (BOOLEAN if tuple(names) == BOOLEANS else "")
                n_classes = max(len(names), int(indices.max(initial=0)) + 1)
                classes = classes_of(indices, names, n_classes, "" if are_texts else of_type)
                if classes.dtype.kind == "U":
                    columns.append(pa.array(map(readable, classes.tolist()), pa.string()))
                else:
                    columns.append(pa.array(classes))
                columns += map(pa.array, (indices, scores.astype(np.float64)))
        named = value_names(self.layers, self.class_names, sizes, self.topk, [*places, *kept.column_names])
        return pa.Table.from_arrays(columns, [*places, *kept.column_names, *["step"] * (n_steps > 1), *named])

    def array(self) -> npt.NDArray[np.float32]:
        """Return the values of the first layer, (n, *shape), for the first store."""
        return self._values(0, self.stores[:1])

    def _values(self, layer: int, stores: Sequence[Predicted]) -> npt.NDArray[np.float32]:
        """Return the values of a layer for all records, (n, *shape)."""
        parts = [done.arrays[layer]["data"] for each in stores for done in each.parts]
        if parts:
            return np.concatenate(parts)
        shaped = next(each for each in self.net.layers if each.conf_name == self.layers[layer])
        shape = (shaped.site.n_steps, *shaped.features[0].shape[1:])[shaped.site.n_steps == 1 :]
        return np.empty((0, shaped.site.n_steps * 2 * self.topk) if self.topk else (0, *shape), np.float32)
