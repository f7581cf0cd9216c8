"""An `Inspection` as lines of text, as wide as the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from singa_dask.cli.inspection import ClassCount, FieldFacts, Inspection
from singa_dask.cli.tables import Column, table
from singa_dask.data.types import TableColumn

WIDTH = 80
KEY = 13
MAX_CLASSES = 50
MAX_NAME = 24
MAX_BAR = 40
MAX_CATEGORIES = 6
MAX_COLUMNS = 100
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"


def inspection_lines(found: Inspection, width: int | None) -> list[str]:
    """Return the lines; ``width`` None: of a terminal of unknown width, nothing is left out or wrapped."""
    files = f" in {found.n_files} files" if found.n_files > 1 else ""
    seen = "all records"
    if found.n_seen < found.n_records:
        seen = f"{found.n_seen} of {found.n_records} records, in blocks evenly spaced; --all for all"
    facts = {
        "url": found.url,
        "format": found.format,
        "records": f"{found.n_records}{files}",
        "blocks": f"{found.n_blocks} of {found.block_rows} records" if found.n_blocks > 1 else "1",
        "bytes": f"{found.n_bytes} ({_short(found.n_bytes)})",
        "version": found.fingerprint,
        "manifest": found.manifest,
        **({"label from": found.label} if found.label else {}),
        **({"layout": found.layout.text} if found.layout else {}),
        "looked at": seen,
    }
    lines = [line for name, value in facts.items() for line in _wrapped(f"{name:{KEY}}", value, width)]
    lines += ["", *_field_lines(found.fields, width)]
    if found.columns:
        lines += ["", *_column_lines(found.columns, found.moments, width)]
    for column in dict.fromkeys(each.column for each in found.classes):
        classes = [each for each in found.classes if each.column == column]
        lines += ["", *_class_lines(classes, found.n_labels, found.n_records, width)]
    if found.trouble:
        lines += ["", "likely trouble"]
        lines += [line for text in found.trouble for line in _wrapped("- ", text, width)]
    return lines


def _wrapped(start: str, text: str, width: int | None) -> list[str]:
    if width is None:
        return [start + text]
    indent = " " * len(start)
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False)


def _field_lines(fields: Sequence[FieldFacts], width: int | None) -> list[str]:
    numbers = [
        Column(name, [_number(getattr(field, name)) for field in fields], rank, right=True)
        for name, rank in (("min", 0), ("max", 0), ("mean", 1), ("nan", 2))
    ]
    shapes = [" x ".join(map(str, field.shape)) for field in fields]
    named = [Column("field", [field.name for field in fields]), Column("type", [field.dtype for field in fields])]
    return table([*named, Column("shape", shapes), *numbers], width)


def _column_lines(
    columns: Sequence[TableColumn], moments: Sequence[Mapping[str, float]], width: int | None
) -> list[str]:
    shown = columns[:MAX_COLUMNS]
    lines = table(
        [
            Column("column", [each.name for each in shown]),
            Column("kind", [each.kind for each in shown], 1),
            Column("read as", [f"{each.field} {each.index}" if each.field else "" for each in shown]),
            *(
                Column(name, [_number(each.get(name)) for each in moments[:MAX_COLUMNS]], 1, True)
                for name in ("mean", "std")
            ),
            Column("missing", [each.missing for each in shown], 2),
            Column("categories", [_categories(each.categories) for each in shown], 3),
        ],
        width,
    )
    return [*lines, *([f"and {len(columns) - MAX_COLUMNS} more columns"] if columns[MAX_COLUMNS:] else [])]


def _categories(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_CATEGORIES} more" if len(names) > MAX_CATEGORIES else ""
    return ", ".join(names[:MAX_CATEGORIES]) + more


def _class_lines(classes: Sequence[ClassCount], n_labels: int, n_records: int, width: int | None) -> list[str]:
    """Return a line with a bar for each class."""
    of = f" of {n_labels} records looked at" if n_labels < n_records else ""
    shown = classes[:MAX_CLASSES]
    names = [each.name if len(each.name) <= MAX_NAME else f"{each.name[: MAX_NAME - 1]}…" for each in shown]
    columns = [
        Column("class", [str(each.label) for each in shown], right=True),
        Column("name", names),
        Column("records", [str(each.count) for each in shown], right=True),
        Column("share", [f"{each.count / n_labels:.1%}" for each in shown], right=True),
    ]
    lines = table(columns, None)
    pad = max(map(len, lines)) + 2
    room = max(min(MAX_BAR, (width or WIDTH) - pad), 1)
    most = max(each.count for each in shown) or 1
    bars = ["", *(_bar(each.count / most * room) for each in shown)]
    lines = [f"{line:{pad}}{bar}".rstrip() for line, bar in zip(lines, bars, strict=True)]
    more = [f"and {len(classes) - MAX_CLASSES} more classes"] if len(classes) > MAX_CLASSES else []
    column = classes[0].column
    return [f"{len(classes)} classes{f' of {column}' if column else ''}{of}", *lines, *more]


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
