"""Spellings of CSV values: words for missing values, blanks around values, and leading zeros."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.data.tables.spelling import MISSING
from singa_dask.survey.columns import ColumnSurvey
from singa_dask.survey.results import OutputSurvey
from singa_dask.survey.table_survey import TableSurvey

# maximum number of numeric columns that a job file lists if all columns of the table are numeric
MAX_LISTED = 64


class Spellings(NamedTuple):
    """Counts of words for missing values, surrounding blanks and leading zeros, for each CSV column."""

    words: Mapping[str, Counter[str]]
    blanks: Counter[str]
    zeros: Counter[str]


def spellings_of(
    table: TableSurvey, used: Sequence[ColumnSurvey], outputs: Sequence[OutputSurvey], reading: Mapping[str, Any]
) -> Spellings:
    """Count how the values of CSV columns are written."""
    may_be_codes, na_values = len(used) <= MAX_LISTED, reading.get("na_values", ())
    named = {each.name: each.names for each in outputs}
    wanted = [each for each in used if each.kind == "string" or each.n_missing
              or (each.is_whole and may_be_codes)]  # fmt: skip
    words, blanks, zeros, n = defaultdict[str, Counter[str]](Counter), Counter[str](), Counter[str](), 0
    for part, run in ((table.parts(file), run) for file, run in table.runs):
        known = {*part.names} if n < table.n_seen else set()
        names, n = [each.name for each in wanted if each.name in known], n + run.n
        for name, column in part.written(run, names).items() if isinstance(part, CsvPart) and names else ():
            plain = pc.utf8_trim_whitespace(column)
            blanks[name] += pc.sum(pc.not_equal(plain, column)).as_py()
            if table.named[name].kind == "number" and name not in named:
                zeros[name] += pc.sum(pc.match_substring_regex(plain, r"^-?0\d+$")).as_py()
            missing = pa.array([word for word in (*MISSING[1:], *na_values) if word not in named.get(name, ())])
            found = pc.value_counts(plain.filter(pc.is_in(plain, missing))).to_pylist()
            words[name].update({each["values"]: each["counts"] for each in found})
    return Spellings(words, +blanks, +zeros)
