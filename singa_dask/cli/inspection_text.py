"""Format the description of a store as lines of text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.cli.printing import TextColumn, table
from singa_dask.data.codecs.tokens import TextMeasure
from singa_dask.shown import by_shape, plural
from singa_dask.wording import listed

WIDTH = 80
KEY = 13
MAX_CLASSES = 50
MAX_NAME = 24
MAX_BAR = 40
MAX_CATEGORIES = 6
MAX_COLUMNS = 100
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"


def inspection_lines(facts: Mapping[str, Any], width: int | None) -> list[str]:
    """Format the result of `inspect_store` as lines of text; if ``width`` is None, nothing is left out or wrapped."""
    files = f" in {facts['files']} files" if facts["files"] > 1 else ""
    seen, blocks = "all records", facts["blocks"]
    if facts["records_seen"] < facts["records"]:
        seen = f"{facts['records_seen']} of {facts['records']} records, in blocks evenly spaced; --all for all"
    texts = {
        "url": facts["url"],
        "format": facts["format"],
        "records": f"{facts['records']}{files}",
        "blocks": f"{blocks} of {facts['block_rows']} records" if blocks > 1 else str(blocks or ""),
        "bytes": f"{facts['bytes']} ({_short(facts['bytes'])})",
        "version": facts["fingerprint"],
        "manifest": facts["manifest"],
        **({"label from": facts["label"]} if facts.get("label") else {}),
        **({"layout": facts["layout"]["text"]} if facts["layout"] else {}),
        "looked at": seen,
    }
    lines = [line for name, value in texts.items() if value for line in _wrapped(f"{name:{KEY}}", value, width)]
    if facts.get("survey"):
        lines += ["", *_survey_lines(facts["survey"], width)]
    if facts["fields"]:
        lines += ["", *_field_lines(facts["fields"], width)]
    # if there is a survey, it describes the columns that a job does not read
    if columns := [each for each in facts["columns"] if each["field"] or not facts.get("survey")]:
        lines += ["", *_column_lines(columns, width)]
    for name, known in facts["texts"].items():
        suits = f"texts: {{{name}: {{length: {known['length']}, vocab_size: {known['vocab_size']}, lowercase: true}}}}"
        lines += ["", *_wrapped(f"text {name}: ", f"{TextMeasure(**known)}. {suits}", width)]
    for column in dict.fromkeys(each["column"] for each in facts["class_counts"]):
        classes = [each for each in facts["class_counts"] if each["column"] == column]
        lines += ["", *_class_lines(classes, facts["labels_seen"], facts["records"], width)]
    if facts["trouble"]:
        lines += ["", "likely trouble"]
        lines += [line for text in facts["trouble"] for line in _wrapped("- ", text, width)]
    return lines


def _wrapped(start: str, text: str, width: int | None) -> list[str]:
    if width is None:
        return [start + text]
    indent = " " * len(start)
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)


def _field_lines(fields: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    columns = [
        TextColumn("field", [field["name"] for field in fields]),
        TextColumn("type", [field["dtype"] for field in fields]),
        TextColumn("shape", [by_shape(field["shape"]) for field in fields]),
    ]
    for name, rank in (("min", 0), ("max", 0), ("mean", 1), ("nan", 2)):
        columns.append(TextColumn(name, [_number(field[name]) for field in fields], rank, right=True))
    return table(columns, width)


def _column_lines(columns: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    shown = columns[:MAX_COLUMNS]
    cells = [
        TextColumn("column", [each["name"] for each in shown]),
        TextColumn("kind", [each["kind"] for each in shown], 1),
        TextColumn("read as", [f"{each['field']} {each['index']}" if each["field"] else "" for each in shown]),
        TextColumn("mean", [_number(each.get("mean")) for each in shown], 1, True),
        TextColumn("std", [_number(each.get("std")) for each in shown], 1, True),
        TextColumn("missing", [each["missing"] for each in shown], 2),
        TextColumn("categories", [listed(each["categories"], MAX_CATEGORIES) for each in shown], 3),
    ]
    more = [f"and {len(columns) - MAX_COLUMNS} more columns"] if columns[MAX_COLUMNS:] else []
    return [*table(cells, width), *more]


def _survey_lines(columns: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    """Return a line for each column of a raw table."""
    shown = columns[:MAX_COLUMNS]
    cells = [
        TextColumn("column", [each["name"] for each in shown]),
        TextColumn("holds", [each["kind"] for each in shown]),
        TextColumn("missing", [str(each["n_missing"]) for each in shown], right=True),
        TextColumn("values", [_values(each) for each in shown]),
    ]
    more = [f"and {len(columns) - MAX_COLUMNS} more columns"] if columns[MAX_COLUMNS:] else []
    return [*table(cells, width), *more]


def _values(column: Mapping[str, Any]) -> str:
    """Return the range of a column, or some of its values."""
    if "low" in column:
        return " to ".join(f"{end:.10g}" if isinstance(end, float) else end for end in (column["low"], column["high"]))
    if "examples" not in column:
        return ""
    more = ", ..." if column["different"] > len(column["examples"]) else ""
    return f"{column['different']} different: {', '.join(column['examples'])}{more}"


def _class_lines(classes: Sequence[Mapping[str, Any]], n_labels: int, n_records: int, width: int | None) -> list[str]:
    """Return a line with a bar for each class."""
    of = f" of {n_labels} records looked at" if n_labels < n_records else ""
    shown = classes[:MAX_CLASSES]
    names, counts = [each["name"] for each in shown], [each["count"] for each in shown]
    columns = [
        TextColumn("class", [str(each["label"]) for each in shown], right=True),
        TextColumn("name", [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…" for name in names]),
        TextColumn("records", list(map(str, counts)), right=True),
        TextColumn("share", [f"{count / n_labels:.1%}" for count in counts], right=True),
    ]
    lines = table(columns, None)
    pad = max(map(len, lines)) + 2
    room = max(min(MAX_BAR, (width or WIDTH) - pad), 1)
    bars = ["", *(_bar(count / (max(counts) or 1) * room) for count in counts)]
    lines = [f"{line:{pad}}{bar}".rstrip() for line, bar in zip(lines, bars, strict=True)]
    more = [f"and {len(classes) - MAX_CLASSES} more classes"] if len(classes) > MAX_CLASSES else []
    column = classes[0]["column"]
    return [f"{plural(len(classes), 'class', 'classes')}{f' of {column}' if column else ''}{of}", *lines, *more]


def _bar(length: float) -> str:
    whole, part = divmod(round(length * 8), 8)
    return (FULL * whole + PARTS[part]).rstrip() if whole or part else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _short(n: int) -> str:
    size, unit = float(n), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g} {unit}"
