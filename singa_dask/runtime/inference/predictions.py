"""Predictions as a table: the record, then name, number and probability of its most likely classes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import ConfigError
from singa_dask.runtime.inference.tasks import TaskResult


@dataclass(frozen=True)
class Predicted:
    """The predictions of the records at one URL.

    Attributes
    ----------
    url : str
        As given by the user.
    parts : sequence of TaskResult
        In order. For each time step, records have pairs of class and probability, the most likely first.
    """

    url: str
    parts: Sequence[TaskResult]

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


def prediction_rows(
    found: Sequence[Predicted], topk: int, names: Sequence[Sequence[str]] = ((),), layers: Sequence[str] = ("",)
) -> Iterator[list[str]]:
    """Yield the names of the columns, then a row for each record, or for each time step of a record.

    The columns: ``file``, if records have their own files or there are several URLs; ``record``, the index of the
    record, unless all have their own files; ``step``, if there are several time steps; ``class``, ``number`` and
    ``probability`` of the most likely class; ``class_2``, ``number_2``, ... of the next ones. Of several layers each
    has such columns, after its name: ``species.class``.

    Parameters
    ----------
    found : sequence of Predicted
    topk : int
        Number of classes for each record.
    names : sequence of sequence of str
        For each layer, names of its classes; a class without a name is shown as its number.
    layers : sequence of str
        Names of the layers.

    Raises
    ------
    ConfigError
        The layers differ in their time steps.
    """
    counts = {arrays["data"][0].size // (2 * topk) for each in found for done in each.parts for arrays in done.arrays}
    if len(counts) > 1:
        raise ConfigError(f"layers {', '.join(layers)} have different time steps. Predict them one by one.")
    n_steps = counts.pop()
    header = [*_place_names(found), *["step"] * (n_steps > 1)]
    for layer in layers:
        prefix = f"{layer}." if len(layers) > 1 else ""
        for rank in range(1, topk + 1):
            suffix = f"_{rank}" if rank > 1 else ""
            header += [f"{prefix}{name}{suffix}" for name in ("class", "number", "probability")]
    yield header
    for place, arrays in _records(found):
        best = [row.reshape(-1, topk, 2) for row in arrays]
        for step in range(n_steps):
            pairs = [(pair, known) for one, known in zip(best, names, strict=True) for pair in one[step]]
            values = [text for (label, value), known in pairs for text in _shown(int(label), value, known)]
            yield [*place, *([str(step)] if n_steps > 1 else []), *values]


def label_rows(
    found: Sequence[Predicted], names: Sequence[Sequence[str]], layers: Sequence[str]
) -> Iterator[list[str]]:
    """Yield the names of the columns, then a row for each record: the probability of each of its labels.

    The columns: ``file`` and ``record`` as in `prediction_rows`; then one for each label, with its name or number. Of
    several layers each has such columns, after its name: ``colour.red``.

    Parameters
    ----------
    found : sequence of Predicted
        All values of each record.
    names : sequence of sequence of str
        For each layer, names of its labels; empty if they have none.
    layers : sequence of str
        Names of the layers.
    """
    header = _place_names(found)
    for layer, known, values in zip(layers, names, found[0].parts[0].arrays, strict=True):
        prefix = f"{layer}." if len(layers) > 1 else ""
        n = values["data"][0].size
        header += [f"{prefix}{name}" for name in (known if len(known) == n else map(str, range(n)))]
    yield header
    for place, arrays in _records(found):
        yield [*place, *(f"{value:.7g}" for row in arrays for value in row.reshape(-1))]


def _place_names(found: Sequence[Predicted]) -> list[str]:
    """Return the names of the columns that say which record a row is of."""
    files = [each.files for each in found]
    return ["file"] * (len(found) > 1 or any(files)) + ["record"] * (not all(files))


def _records(found: Sequence[Predicted]) -> Iterator[tuple[list[str], list[npt.NDArray[Any]]]]:
    """Yield each record: the columns that say which it is, and the values of each layer."""
    names = _place_names(found)
    for each in found:
        own = each.files
        arrays = (rows for done in each.parts for rows in zip(*(one["data"] for one in done.arrays), strict=True))
        for number, rows in enumerate(arrays):
            place = {"file": own[number] if own else each.url, "record": "" if own else str(number)}
            yield [place[name] for name in names], list(rows)


def _shown(label: int, probability: float, names: Sequence[str]) -> tuple[str, str, str]:
    return names[label] if label < len(names) else str(label), str(label), f"{probability:.6g}"


def labels_of(numbers: npt.NDArray[np.int64], names: Sequence[str], n_classes: int) -> npt.NDArray[Any]:
    """Return the names of classes; numbers if they have none, and the number of one without a name."""
    if not names:
        return numbers
    return np.array([*names[:n_classes], *map(str, range(len(names), n_classes))])[numbers]


def csv_lines(rows: Iterable[Sequence[str]], delimiter: str = ",") -> Iterator[str]:
    """Yield each row as a line of CSV (RFC 4180, but lines end with LF); values are quoted as needed."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(row)
        yield line.getvalue()
