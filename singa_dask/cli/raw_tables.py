"""Raw tables: their first records as the files contain them, and their columns, read as ``init`` does."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from singa_dask.cli.opening import store_format
from singa_dask.cli.printing import TextColumn, table
from singa_dask.cli.reading import Reading
from singa_dask.data.tables.column_names import refuse_absent
from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.data.tables.files.json_text import load_object
from singa_dask.inference.value_files import text_columns
from singa_dask.shown import plural
from singa_dask.survey.column_kinds import kind_of
from singa_dask.survey.columns import ColumnSurvey, show_value
from singa_dask.survey.csv_head import HEAD_BYTES
from singa_dask.survey.number_faults import refuse_other_marks
from singa_dask.survey.numbers import with_numbers
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.read_table import OpenTable, open_table, read_table
from singa_dask.survey.spellings import spellings_of
from singa_dask.survey.survey import holds_table
from singa_dask.survey.table_survey import TableSurvey, decoded

MAX_EXAMPLES = 3
# maximum width of a cell on a terminal
MAX_CELL = 40


def is_raw_table(url: str, reading: Reading) -> bool:
    """Return whether `init` reads data as a table, and no option asks for records of arrays."""
    backend, options = store_format(url, reading)
    if not backend or reading.shape or "format" in reading.options or options.get("has_label") is False:
        return False
    return holds_table(url, backend, _options(reading), reading.storage_options)


def _options(reading: Reading, thousands: str = "", decimal: str = "") -> SurveyOptions:
    given = reading.options
    return SurveyOptions(
        label=tuple(_listed(given.get("label"))),
        separator=given.get("separator", ""),
        encoding=given.get("charset", ""),
        header=given.get("header"),
        quotes=given.get("quotes"),
        na_values=tuple(given.get("na_values", ())),
        thousands=thousands,
        decimal=decimal,
    )


def _listed(names: Any) -> list[str]:
    """Return the names that an option has, as a list or separated by commas."""
    return names.split(",") if isinstance(names, str) else [*(names or ())]


# -- the first records ------------------------------------------------------------------------------------


def first_records(url: str, reading: Reading, n: int) -> pa.Table | None:
    """Return the first ``n`` records of a table as texts, with missing values as in the file.

    With ``--features``, only these columns and the columns of ``--label`` are returned. The result is None for lines of
    numbers without a header, which are records and not a table.
    """
    options = _options(reading)
    opened = open_table(url, options, reading.storage_options)
    named = _named(reading)
    if opened.text.get("header") is False and {*opened.kinds.values()} == {"number"} and not named:
        return None
    names = _chosen(url, [*opened.kinds], named)
    found, n_found = list[pa.Table](), 0
    for texts in _texts(opened):
        found.append(texts)
        n_found += len(texts)
        if n_found >= n:
            break
    return pa.concat_tables(found).select(names).slice(0, n)


def _named(reading: Reading) -> dict[str, Any]:
    return {name: value for name, value in reading.options.items() if name in ("features", "label", "target")}


def _chosen(url: str, names: Sequence[str], named: Mapping[str, Any]) -> list[str]:
    """Return the columns to show; raises a `DataError` if an option names a column that does not exist."""
    wanted = [name for key in named for name in _listed(named[key])]
    refuse_absent(url, names, [each for each in wanted if each not in names and not fnmatch.filter(names, each)])
    if "features" not in named:
        return [*names]
    return [name for name in names if any(name == each or fnmatch.fnmatchcase(name, each) for each in wanted)]


def _texts(opened: OpenTable) -> Iterator[pa.Table]:
    """Yield the texts of all columns of the next records."""
    parts, kinds = opened.parts, opened.kinds
    parts.open_runs.n = 1
    for file in range(len(parts.files)):
        part = parts(file)
        keys = dict(parts.files[file].keys)
        names = [name for name in kinds if name not in keys]
        for run in part.runs(HEAD_BYTES, 4 * len(kinds)):
            if isinstance(part, CsvPart):
                columns = part.written(run, names)
                texts = pa.table(columns) if columns else decoded(parts, file, run, dict.fromkeys(names, "string"))
            elif opened.format == "jsonl":
                texts = _json_texts(bytes(part.source.read(run.offset, run.length)), names)
            else:
                texts = text_columns(decoded(parts, file, run, {name: kinds[name] for name in names}))
            for name, value in keys.items():
                texts = texts.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(texts)))
            yield texts.cast(pa.schema([(name, pa.string()) for name in texts.column_names])).select([*kinds])


def _json_texts(text: bytes, names: Sequence[str]) -> pa.Table:
    """Return values of JSON lines as texts; values other than strings and null are JSON."""
    records = [load_object(line) for line in text.split(b"\n") if line.strip()]
    values = {name: [record.get(name) for record in records] for name in names}
    return pa.table({name: pa.array(map(_json_text, column), pa.string()) for name, column in values.items()})


def _json_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def head_lines(records: pa.Table, width: int | None) -> list[str]:
    """Return records as a table of lines; columns beyond ``width`` are in further tables below."""
    columns = [
        TextColumn(name, [_cell(value, width) for value in records.column(name).to_pylist()])
        for name in records.column_names
    ]
    lines, group = list[str](), list[TextColumn]()
    for column in columns:
        if width is not None and group and sum(each.width + 2 for each in (*group, column)) - 2 > width:
            lines += [*table(group, None, keep_empty=True), ""]
            group = []
        group.append(column)
    return [*lines, *table(group, None, keep_empty=True)]


def _cell(value: str | None, width: int | None) -> str:
    text = value or ""
    return text if width is None or len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


# -- the columns ------------------------------------------------------------------------------------------


def survey_columns(url: str, reading: Reading, thousands: str, decimal: str) -> TableSurvey:
    """Read the columns of a table as `init` does, with numbers that are written as text.

    Raises a `DataError` if the table cannot be read, or an option does not fit.
    """
    options = _options(reading, thousands, decimal)
    found = with_numbers(read_table(open_table(url, options, reading.storage_options), options), options, ())
    _chosen(url, [*found.named], _named(reading))
    refuse_other_marks(url, found.columns, options)
    return found


def describe_columns(found: TableSurvey) -> list[dict[str, Any]]:
    """Return name, kind, number of missing values, and values of each column, for JSON.

    Columns of numbers and dates have ``low`` and ``high``. Other columns have ``different``, the number of distinct
    values, and ``examples``.
    """
    return [
        {"name": each.name, "kind": kind_of(each), "n_missing": each.n_missing, **_values(each)}
        for each in found.columns
    ]


def _values(column: ColumnSurvey) -> dict[str, Any]:
    if not len(column.present) or column.kind not in ("number", "boolean", "string", "date", "timestamp"):
        return {}
    if column.kind == "number":
        return {"low": float(column.numbers.min()), "high": float(column.numbers.max())}
    ends = set[tuple[str, str]]()
    for times in column.times:
        # dates such as 1/2/2024 can be read in two ways, which may give other first and last dates
        pairs = zip(times, column.values.to_pylist(), strict=True)
        known = sorted(((time, value) for time, value in pairs if time is not None), key=lambda pair: pair[0])
        ends.add((show_value(known[0][1]), show_value(known[-1][1])))
    if len(ends) == 1:
        low, high = ends.pop()
        return {"low": low, "high": high}
    examples = [show_value(value) for value in column.distinct[:MAX_EXAMPLES].to_pylist()]
    return {"different": len(column.distinct), "examples": examples}


def doubts_of(found: TableSurvey) -> list[str]:
    """Return messages about values that a job needs an option to read."""
    doubts = [f"{each.name}: {each.fault}" for each in found.columns if each.fault]
    for each in found.columns:
        if len(each.forms) > 1:
            ways = " or ".join(f"{form.parse(pa.array([each.example]))[0].as_py():.10g}" for form in each.forms)
            doubts.append(f"{each.name}: {each.example!r} is {ways}. Pass --thousands or --decimal to init")
    zeros = spellings_of(found, [each for each in found.columns if each.name], (), {}).zeros
    return doubts + [
        f"{name}: {plural(n, 'number')} with leading zeros. If they are codes, pass --category {name} to init"
        for name, n in zeros.items()
    ]


def inspect_raw(found: TableSurvey) -> dict[str, Any]:
    """Describe a table that cannot be opened as a store, with the keys of `inspect_store`."""
    sizes = [found.parts(file).source.size for file in range(len(found.parts.files))]
    return {
        "url": found.url,
        "format": f"table, {found.format}",
        "files": len(sizes),
        "record": "",
        "records": found.n,
        "blocks": 0,
        "block_rows": "",
        "bytes": sum(sizes),
        "fingerprint": "",
        "manifest": "",
        "records_seen": found.n_seen,
        "fields": [],
        "labels_seen": 0,
        "class_counts": [],
        "columns": [],
        "texts": {},
        "layout": None,
        "trouble": [],
    }
