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
from singa_dask.runtime.inference.part import PartResult

__all__ = ["Predicted", "csv_lines", "labels_of", "prediction_rows"]


@dataclass(frozen=True)
class Predicted:
    """The predictions of the records at one URL.

    Attributes
    ----------
    url : str
        As given by the user.
    parts : sequence of PartResult
        In order. For each time step, records have pairs of class and probability, the most likely first.
    """

    url: str
    parts: Sequence[PartResult]

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
    files = [each.files for each in found]
    has_file, has_record = len(found) > 1 or any(files), not all(files)
    counts = {arrays["data"][0].size // (2 * topk) for each in found for done in each.parts for arrays in done.arrays}
    if len(counts) > 1:
        raise ConfigError(f"layers {', '.join(layers)} have different time steps. Predict them one by one.")
    n_steps = counts.pop()
    header = ["file"] * has_file + ["record"] * has_record + ["step"] * (n_steps > 1)
    for layer in layers:
        prefix = f"{layer}." if len(layers) > 1 else ""
        for rank in range(1, topk + 1):
            suffix = f"_{rank}" if rank > 1 else ""
            header += [f"{prefix}{name}{suffix}" for name in ("class", "number", "probability")]
    yield header
    for each, own in zip(found, files, strict=True):
        for number, best in enumerate(_records(each, topk)):
            place = [own[number] if own else each.url] * has_file
            place += ["" if own else str(number)] * has_record
            for step in range(n_steps):
                pairs = [(pair, known) for one, known in zip(best, names, strict=True) for pair in one[step]]
                values = [text for (label, value), known in pairs for text in _shown(int(label), value, known)]
                yield [*place, *([str(step)] if n_steps > 1 else []), *values]


def _records(found: Predicted, topk: int) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield for each record the (steps, topk, 2) pairs of each layer."""
    for done in found.parts:
        for rows in zip(*(arrays["data"] for arrays in done.arrays), strict=True):
            yield [row.reshape(-1, topk, 2) for row in rows]


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
