"""Numbers written as text: money, percent, decimal commas, and words among them."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.tables.column_values import as_texts
from singa_dask.data.tables.files.csv_part import CsvPart
from singa_dask.data.tables.spelling import BLANK, MISSING, NumberConf, Spelling
from singa_dask.survey.columns import ColumnSurvey, show_value
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.table_survey import TableSurvey

PLAIN, IN_POINTS = NumberConf(), NumberConf(thousands=".", decimal=",")
# FORMS: pairs (thousands separator, decimal mark) to try. MARKS: pattern that shows that a mark occurs between digits
FORMS = (("", "."), (",", "."), ("", ","), (".", ","), (" ", "."), (" ", ","), ("'", "."), ("'", ","))
MARKS = {"": "", ",": r"\d,\d", ".": r"\d\.\d", " ": rf"\d{BLANK}\d", "'": r"\d['\x{2019}]\d"}
CODES = frozenset("AUD BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF ILS INR JPY KRW MXN NOK NZD PLN SEK TRY USD ZAR".split())
UNITS = frozenset(["%", "\u2030", "Fr.", "Rs.", "Rs", "kr.", "kr", "z\u0142", "K\u010d", "Ft", "lei"])
# characters that may surround a number, besides its unit
AROUND = "+-\u2212() \t\u00a0\u2007\u2009\u202f"
# a word after a number that may be the unit of the number, such as m², km/h or °C
MEASURE = re.compile(r"[^\s\d.,;:()+\-'\"_#&]{1,8}")
ENDS = r"^(?P<before>[^0-9]*)[0-9](?:.*[0-9])?(?P<after>[^0-9]*)$"
# TWO_WAYS matches a number whose point may be a decimal point or a thousands separator; ONE_WAY matches an unambiguous
# integer
TWO_WAYS, ONE_WAY = r"^-?[1-9]\d{0,2}\.\d{3}$", r"^-?\d{1,3}$"
# maximum number of words among numbers that a message lists
MAX_WORDS = 8


def with_numbers(table: TableSurvey, options: SurveyOptions, names: Collection[str]) -> TableSurvey:
    """Return a table whose numbers written as text are converted, except in the columns ``names``."""
    columns = [each if each.name in names else _read(each, table.format, options) for each in table.columns]
    columns = [_proven(each, written, columns) for each, written in zip(columns, table.columns, strict=True)]
    has_commas = table.text.get("separator") == ";" or any(
        form.decimal == "," for each in columns for form in each.forms
    )
    if table.format == "csv":
        columns = [each if each.name in names else _points(each, table, options, has_commas) for each in columns]
    kinds = {each.name: each.kind for each in columns if each.forms}
    return replace(table, columns=columns, kinds={**table.kinds, **kinds})


def _read(column: ColumnSurvey, format: str, options: SurveyOptions) -> ColumnSurvey:
    """Convert a column of text to numbers, or record why it cannot be converted.

    The column is returned unchanged if most of its texts are no numbers.
    """
    if column.kind != "string" or column.is_date:
        return column
    texts = column.present.filter(pc.invert(pc.is_in(column.present, pa.array(MISSING))))
    different, best = _best_forms(texts)
    if not best and not column.are_categories(len(column.values)):
        best = _measures(different)
    if not best:
        return column
    form, numbers = best[0]
    wrong = different.filter(numbers.is_null()).to_pylist()
    if form == PLAIN and format != "csv":
        is_code = (
            column.are_categories(len(column.values)) or pc.any(pc.match_substring_regex(different, r"^0\d")).as_py()
        )
        if is_code or len(_words(wrong)) < len(wrong):
            return column
    if wrong:
        words = _words(wrong)
        return replace(column, fault=_fault(column, wrong), words=words if len(words) == len(wrong) else ())
    # if several forms give the same values, only the first one counts
    ways = [each for i, each in enumerate(best) if not any(each[1].equals(other[1]) for other in best[:i])]
    forms = [each for each, _ in ways]
    said = [each for each in forms if len(forms) > 1 and _is_said(each, options)]
    form = (said or forms)[0]
    unlike = "" if said or not (options.thousands or options.decimal) else _unlike(form, different, options)
    example = max(different[:1000].to_pylist(), key=len)
    values = form.parse(as_texts(column.values))
    return replace(
        column,
        kind="number",
        values=values,
        forms=tuple(said or forms),
        fault="",
        example=example,
        unlike=unlike,
        is_said=bool(said),
    )


def _proven(column: ColumnSurvey, written: ColumnSurvey, others: Sequence[ColumnSurvey]) -> ColumnSurvey:
    """Read a column of ambiguous numbers with the decimal mark that other columns with its unit prove.

    ``written`` is the same column before its texts were converted. The column is returned unchanged if there is no
    proof, or if two columns prove different decimal marks.
    """
    if len(column.forms) < 2 or not column.forms[0].unit:
        return column
    unit = column.forms[0].unit
    found = [(each, mark) for each in others for mark in [_decimal_mark(each, unit)] if mark]
    if len({mark for _, mark in found}) != 1:
        return column
    (proof, mark), *_ = found
    forms = tuple(form for form in column.forms if form.decimal == mark)
    if len(forms) != 1:
        return column
    shown = f"{proof.example!r} of column {proof.name!r}"
    return replace(column, values=forms[0].parse(as_texts(written.values)), forms=forms, proof=shown)


def _decimal_mark(column: ColumnSurvey, unit: str) -> str:
    """Return the decimal mark that the numbers with a unit in a column prove; empty if they prove none."""
    if len(column.forms) != 1 or column.forms[0].unit != unit or column.is_said or column.unlike:
        return ""
    (form,) = column.forms
    numbers = column.numbers
    if bool((numbers != numbers.round()).any()):
        return form.decimal
    return {",": ".", ".": ","}.get(form.thousands, "")


def _best_forms(texts: pa.Array) -> tuple[pa.Array, list[tuple[NumberConf, pa.Array]]]:
    """Return the distinct texts, and the forms that read most texts as numbers.

    There are no forms if half of the texts or fewer are read.
    """
    counted = pc.value_counts(texts)
    different, counts = counted.field("values"), counted.field("counts").to_numpy()

    def count(chosen: pa.Array) -> int:
        return int(counts[np.asarray(chosen.to_numpy(zero_copy_only=False), np.bool_)].sum())

    if 2 * count(pc.match_substring_regex(different, r"\d")) <= len(texts):
        return different, []
    found = [(form, form.parse(different)) for form in _forms_of(different, _unit_of(different))]
    n_read = [count(numbers.is_valid()) for _, numbers in found]
    is_best = 2 * max(n_read) > len(texts)
    return different, [each for each, n in zip(found, n_read, strict=True) if is_best and n == max(n_read)]


def _measures(texts: pa.Array) -> list[tuple[NumberConf, pa.Array]]:
    """Return the forms that read all texts as numbers followed by the same word, such as ``83,6 m²``."""
    ends = pc.extract_regex(texts, ENDS)
    words = {each.strip(AROUND) for each in pc.unique(ends.field(1)).drop_null().to_pylist()} if len(texts) else set()
    word = words.pop() if len(words) == 1 and not ends.null_count else ""
    if not MEASURE.fullmatch(word):
        return []
    found = [(form, form.parse(texts)) for form in _forms_of(texts, word)]
    return [each for each in found if not each[1].null_count]


def are_mostly_numbers(texts: pa.Array) -> bool:
    """Return whether more than half of the texts are numbers in the same form."""
    return bool(_best_forms(texts)[1])


def say_forms(name: str, texts: pa.Array) -> str:
    """Return a message on how to read a text column as numbers; empty if the column also has other texts."""
    different, best = _best_forms(texts)
    forms = [form for form, numbers in best if not numbers.null_count]
    if not forms:
        return ""
    keys = [Spelling({name: form}).to_dict()["numbers"][name] for form in forms]
    ways = " or ".join(f"numbers: {{{name}: {json.dumps(key, ensure_ascii=False)}}}" for key in keys)
    return f"{name}: numbers written as text, such as {different[0].as_py()!r}. To read them, set {ways}"


def _forms_of(texts: pa.Array, unit: str) -> Iterator[NumberConf]:
    """Yield the forms (`NumberConf`) with a unit that the separators in the texts allow."""
    is_there = {
        mark: not pattern or pc.any(pc.match_substring_regex(texts, pattern)).as_py() for mark, pattern in MARKS.items()
    }
    yield from (
        PLAIN.model_copy(update={"thousands": mark, "decimal": decimal, "unit": unit})
        for mark, decimal in FORMS
        # points between thousands need no comma: 1.234 may be 1234
        if is_there[mark] and (decimal == "." or mark == "." or is_there[","])
    )


def _unit_of(texts: pa.Array) -> str:
    """Return the most frequent currency or percent sign beside the numbers; empty if there is none."""
    ends = pc.extract_regex(texts, ENDS).drop_null()
    counted = pc.value_counts(pc.binary_join_element_wise(ends.field(0), ends.field(1), "\0")).to_pylist()
    around = {each["values"]: each["counts"] for each in counted}
    most = max(around, key=lambda each: around[each], default="\0")
    return next((found for each in most.split("\0") if (found := known_unit(each))), "")


def known_unit(text: str) -> str:
    """Return the currency or percent sign in the text before or after a number; empty if there is none."""
    for found in (text.strip(AROUND), text.strip(AROUND + ".,")):
        symbols = [unicodedata.category(character) for character in found]
        is_currency = symbols.count("Sc") == 1 and {*symbols} <= {"Sc", "Lu"} and len(found) <= 4
        if is_currency or found in UNITS or found.upper() in CODES:
            return found
    return ""


def _is_said(form: NumberConf, options: SurveyOptions) -> bool:
    """Return whether ``--thousands`` or ``--decimal`` is given, and a form matches the given options."""
    given = options.thousands or options.decimal
    return (
        bool(given)
        and form.thousands == (options.thousands or form.thousands)
        and form.decimal == (options.decimal or form.decimal)
    )


def _words(wrong: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without digits and commas, which may mean missing values.

    The result is empty if there are more than `MAX_WORDS` texts.
    """
    return tuple(text for text in wrong if not re.search(r"[\d,]", text)) if len(wrong) <= MAX_WORDS else ()


def _fault(column: ColumnSurvey, wrong: Sequence[str]) -> str:
    texts = pc.utf8_trim_whitespace(as_texts(column.values))
    n = {text: pc.sum(pc.equal(texts, text)).as_py() for text in wrong[:MAX_WORDS]}
    shown = [
        f"{show_value(text)!r} ({n[text]}, the first in record {pc.index(texts, text).as_py() + 1})"
        for text in sorted(n, key=lambda each: -n[each])
    ]
    more = f" and {len(wrong) - MAX_WORDS} more" if len(wrong) > MAX_WORDS else ""
    return f"most values are numbers, but not {', '.join(shown)}{more}."


def _unlike(form: NumberConf, texts: pa.Array, options: SurveyOptions) -> str:
    """Return a text that cannot be read with ``--thousands`` and ``--decimal``; empty if there is none."""
    thousands, decimal = options.thousands or form.thousands, options.decimal or form.decimal
    if thousands == decimal:
        thousands, decimal = options.thousands, options.decimal or ("," if thousands == "." else ".")
    parsed = form.model_copy(update={"thousands": thousands, "decimal": decimal}).parse(texts)
    wrong: list[str] = texts.filter(parsed.is_null()).to_pylist()
    return wrong[0] if wrong else ""


def _points(column: ColumnSurvey, table: TableSurvey, options: SurveyOptions, has_commas: bool) -> ColumnSurvey:
    """Return a CSV column of numbers; add both ways to read it if its points may separate thousands."""
    if column.kind != "number" or column.forms or not column.name:
        return column
    if options.thousands == "." or options.decimal == ",":
        decimals = column.numbers[column.numbers != column.numbers.round()]
        column = replace(column, unlike=f"{decimals[0]:.10g}" if len(decimals) else "")
    if not _may_have_points(column.numbers):
        return column
    parts, example = list[pa.Array](), ""
    for texts in _written(table, column):
        parts.append(texts)
        has_two = pc.match_substring_regex(texts, TWO_WAYS)
        example = example or next(iter(texts.filter(has_two)[:1].to_pylist()), "")
        is_missing = pc.is_in(texts, pa.array([*MISSING, *options.na_values]))
        is_same = pc.or_(is_missing, pc.match_substring_regex(texts, ONE_WAY))
        if not example or not pc.all(pc.or_(is_same, has_two)).as_py():
            return column
    if not parts:
        return column
    texts = pa.chunked_array(parts).combine_chunks()
    if options.thousands == "." or options.decimal == ",":
        return replace(
            column, values=IN_POINTS.parse(texts), forms=(IN_POINTS,), example=example, unlike="", is_said=True
        )
    if options.thousands or options.decimal:
        return replace(column, is_said=True)
    return replace(column, forms=(PLAIN, IN_POINTS) if has_commas else (), example=example)


def _may_have_points(numbers: np.ndarray) -> bool:
    """Return whether points in numbers may separate thousands, so that the numbers were misread.

    This is possible if all numbers are from 1 to 1000, and have at most three decimals.
    """
    size, thousands = np.abs(numbers), numbers * 1000
    is_whole = numbers == numbers.round()
    return bool(
        len(numbers)
        and (size < 1000).all()
        and (is_whole | (size >= 1)).all()
        and (np.abs(thousands - thousands.round()) < 1e-6).all()
    )


def _written(table: TableSurvey, column: ColumnSurvey) -> Iterator[pa.Array]:
    """Yield the texts of a CSV column as the file contains them, many records at a time."""
    n = 0
    for file, run in table.runs:
        if n == len(column.values):
            return
        part, n = table.parts(file), n + run.n
        written = part.written(run, [column.name]) if isinstance(part, CsvPart) and column.name in part.names else {}
        if not written:
            return
        yield pc.utf8_trim_whitespace(written[column.name])
