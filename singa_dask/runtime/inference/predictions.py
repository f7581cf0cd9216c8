"""Predictions as a table: the record, then name, number and probability of its most likely classes."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from singa_dask.runtime.inference.part import PartResult

__all__ = ["Predicted", "csv_lines", "prediction_rows"]


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


def prediction_rows(found: Sequence[Predicted], topk: int, names: Sequence[str] = ()) -> Iterator[list[str]]:
    """Yield the names of the columns, then a row for each record, or for each time step of a record.

    The columns: ``file``, if records have their own files or there are several URLs; ``record``, the index of the
    record, unless all have their own files; ``step``, if there are several time steps; ``class``, ``number`` and
    ``probability`` of the most likely class; ``class_2``, ``number_2``, ... of the next ones.

    Parameters
    ----------
    found : sequence of Predicted
    topk : int
        Number of classes for each record.
    names : sequence of str
        Names of the classes; a class without a name is shown as its number.
    """
    files = [each.files for each in found]
    has_file, has_record = len(found) > 1 or any(files), not all(files)
    n_steps = max(done.arrays[0]["data"][0].size // (2 * topk) for each in found for done in each.parts)
    header = ["file"] * has_file + ["record"] * has_record + ["step"] * (n_steps > 1)
    for rank in range(1, topk + 1):
        header += [f"{name}_{rank}" if rank > 1 else name for name in ("class", "number", "probability")]
    yield header
    for each, own in zip(found, files, strict=True):
        records = (pairs for done in each.parts for pairs in done.arrays[0]["data"])
        for number, pairs in enumerate(records):
            place = [own[number] if own else each.url] * has_file
            place += ["" if own else str(number)] * has_record
            for step, best in enumerate(pairs.reshape(n_steps, topk, 2)):
                values = [text for label, value in best for text in _shown(int(label), value, names)]
                yield [*place, *([str(step)] if n_steps > 1 else []), *values]


def _shown(label: int, probability: float, names: Sequence[str]) -> tuple[str, str, str]:
    return names[label] if label < len(names) else str(label), str(label), f"{probability:.6g}"


def csv_lines(rows: Iterable[Sequence[str]], delimiter: str = ",") -> Iterator[str]:
    """Yield each row as a line of CSV (RFC 4180, but lines end with LF); values are quoted as needed."""
    for row in rows:
        line = io.StringIO()
        csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(row)
        yield line.getvalue()
