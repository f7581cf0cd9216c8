"""Numbers written as text: money, percent, decimal commas, words among them, and leading zeros."""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.codecs.columns import as_texts
from singa_dask.data.codecs.numbers import BLANK, MISSING, NumberConf, Spelling
from singa_dask.data.stores.tables.table_csv import CsvPart
from singa_dask.errors import ConfigError, DataError
from singa_dask.survey.columns import ColumnSurvey, show_value
from singa_dask.survey.options import SurveyOptions, UnsureError
from singa_dask.survey.results import OutputSurvey
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

PLAIN, IN_POINTS = NumberConf(), NumberConf(thousands=".", decimal=",")
# pairs (thousands separator, decimal mark) to try, and the pattern that each mark needs between digits
FORMS = (("", "."), (",", "."), ("", ","), (".", ","), (" ", "."), (" ", ","), ("'", "."), ("'", ","))
MARKS = {"": "", ",": r"\d,\d", ".": r"\d\.\d", " ": rf"\d{BLANK}\d", "'": r"\d['\x{2019}]\d"}
CODES = frozenset("AUD BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF ILS INR JPY KRW MXN NOK NZD PLN SEK TRY USD ZAR".split())
UNITS = frozenset(["%", "\u2030", "Fr.", "Rs.", "Rs", "kr.", "kr", "z\u0142", "K\u010d", "Ft", "lei"])
# characters that may surround a number, besides its unit
AROUND = "+-\u2212() \t\u00a0\u2007\u2009\u202f"
# a word behind numbers that may be their unit, such as m², km/h or °C
MEASURE = re.compile(r"[^\s\d.,;:()+\-'\"_#&]{1,8}")
ENDS = r"^(?P<before>[^0-9]*)[0-9](?:.*[0-9])?(?P<after>[^0-9]*)$"
# TWO_WAYS matches a number whose point may be a decimal point or a thousands separator; ONE_WAY matches an unambiguous
# integer
TWO_WAYS, ONE_WAY = r"^-?[1-9]\d{0,2}\.\d{3}$", r"^-?\d{1,3}$"
# maximum number of numeric columns that a job file lists if the table has no other columns
MAX_LISTED = 64
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
    """Read an ambiguous column in the way that other columns with the same unit prove.

    ``written`` is the column with its texts. The column is returned unchanged if there is no proof, or if two columns
    prove different decimal marks.
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
    """Return the decimal mark that a column of numbers with a unit proves; empty if it proves none."""
    if len(column.forms) != 1 or column.forms[0].unit != unit or column.is_said or column.unlike:
        return ""
    (form,) = column.forms
    numbers = column.numbers
    if bool((numbers != numbers.round()).any()):
        return form.decimal
    return {",": ".", ".": ","}.get(form.thousands, "")


def _best_forms(texts: pa.Array) -> tuple[pa.Array, list[tuple[NumberConf, pa.Array]]]:
    """Return the distinct texts, and the forms in which most of them are numbers, if more than half are."""
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
    """Return the forms in which all texts are numbers with one word behind them, such as ``83,6 m²``."""
    ends = pc.extract_regex(texts, ENDS)
    words = {each.strip(AROUND) for each in pc.unique(ends.field(1)).drop_null().to_pylist()} if len(texts) else set()
    word = words.pop() if len(words) == 1 and not ends.null_count else ""
    if not MEASURE.fullmatch(word):
        return []
    found = [(form, form.parse(texts)) for form in _forms_of(texts, word)]
    return [each for each in found if not each[1].null_count]


def are_mostly_numbers(texts: pa.Array) -> bool:
    """Return whether more than half of the texts are numbers, in one way to write them."""
    return bool(_best_forms(texts)[1])


def say_forms(name: str, texts: pa.Array) -> str:
    """Return a message that says how to read a text column as numbers; empty if it also has other texts."""
    different, best = _best_forms(texts)
    forms = [form for form, numbers in best if not numbers.null_count]
    if not forms:
        return ""
    keys = [Spelling({name: form}).to_dict()["numbers"][name] for form in forms]
    ways = " or ".join(f"numbers: {{{name}: {json.dumps(key, ensure_ascii=False)}}}" for key in keys)
    return f"{name}: numbers written as text, such as {different[0].as_py()!r}. To read them, set {ways}"


def _forms_of(texts: pa.Array, unit: str) -> Iterator[NumberConf]:
    """Yield forms of numbers with a unit, with the separators that occur in the texts."""
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
    """Return whether a form matches ``--thousands`` and ``--decimal``, if given."""
    given = options.thousands or options.decimal
    return (
        bool(given)
        and form.thousands == (options.thousands or form.thousands)
        and form.decimal == (options.decimal or form.decimal)
    )


# -- errors -----------------------------------------------------------------------------------------------


def _words(wrong: Sequence[str]) -> tuple[str, ...]:
    """Return the texts without digits and commas, which may mean missing values, if texts are few."""
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


def refuse_faults(table: TableSurvey, columns: Sequence[ColumnSurvey], options: SurveyOptions) -> None:
    """Raise an error for used columns with unreadable or ambiguous values.

    Raises
    ------
    DataError
        A column that is used has values that cannot be read. The message names the columns, some values and their
        records, and the option with which they can be read.
    UnsureError
        The numbers of a column can be read in two ways.
    """
    refuse_other_marks(table.url, columns, options)
    unsure = [each for each in columns if len(each.forms) > 1]
    asked = _question(table.url, unsure) if unsure else None
    if faulty := [each for each in columns if each.fault]:
        faults = [f"column {each.name!r}: {each.fault}" for each in faulty]
        names = shlex.quote(",".join(each.name for each in faulty))
        words = [word for each in faulty for word in each.words]
        given = shlex.quote(",".join(dict.fromkeys([*options.na_values, *words])))
        answer = f"--na-values {given}"
        advice = f"Add {answer} for missing values, or --drop {names}."
        if not all(each.words for each in faulty):
            answer = f"--drop {names}"
            advice = f"Write all values of a column in one way, or add {answer}."
        if asked:
            mark = next(f"--{name} {mark}" for name, mark in asked.choices[0][1].items())
            question = str(asked).removeprefix(f"{table.url}: ")
            advice += f" Also, {question} To answer all at once:\n  {answer} {mark}"
        raise DataError(f"{table.url}: {' '.join(faults)} {advice}")
    if asked:
        raise asked


def _question(url: str, columns: Sequence[ColumnSurvey]) -> UnsureError:
    """Return the question in which of two ways the numbers of columns are read."""
    column, *others = columns
    choices = list[tuple[str, dict[str, str]]]()
    for form in column.forms:
        said: dict[str, str] = {"thousands": form.thousands} if form.thousands else {"decimal": form.decimal}
        choices.append((f"{form.parse(pa.array([column.example]))[0].as_py():.10g}", said))
    how = [f"--{name} {mark} for {shown}" for shown, said in choices for name, mark in said.items()]
    also = f" The same holds for {listed([each.name for each in others])}." if others else ""
    question = f"is {column.example!r} of column {column.name!r} {' or '.join(shown for shown, _ in choices)}?"
    return UnsureError(url, question, choices, f"Pass {', or '.join(how)}; it applies to all such columns.{also}")


def refuse_other_marks(url: str, columns: Sequence[ColumnSurvey], options: SurveyOptions) -> None:
    """Raise a ConfigError if numbers cannot be read as ``--thousands`` and ``--decimal`` say.

    If these options decide how another column is read, they are meant for that column.
    """
    is_used = any(each.is_said for each in columns)
    for each in columns:
        if each.unlike and not is_used:
            marks = (("thousands", options.thousands), ("decimal", options.decimal))
            said = " ".join(f"--{key} {shlex.quote(mark)}" for key, mark in marks if mark)
            raise ConfigError(
                f"{url}: column {each.name!r} has numbers such as {each.unlike!r}, which {said} does not fit. Leave "
                "the option out, or pass the marks of these numbers."
            )


def _unlike(form: NumberConf, texts: pa.Array, options: SurveyOptions) -> str:
    """Return a text that cannot be read with ``--thousands`` and ``--decimal``; empty if all can."""
    thousands, decimal = options.thousands or form.thousands, options.decimal or form.decimal
    if thousands == decimal:
        thousands, decimal = options.thousands, options.decimal or ("," if thousands == "." else ".")
    parsed = form.model_copy(update={"thousands": thousands, "decimal": decimal}).parse(texts)
    wrong: list[str] = texts.filter(parsed.is_null()).to_pylist()
    return wrong[0] if wrong else ""


# -- points as thousands separators -------------------------------------------------------------------------


def _points(column: ColumnSurvey, table: TableSurvey, options: SurveyOptions, has_commas: bool) -> ColumnSurvey:
    """Return a CSV column of numbers; if its points may separate thousands, with both ways to read it."""
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


# -- how values of CSV are written ---------------------------------------------------------------------------


class Spellings(NamedTuple):
    """Counts for each CSV column of words for missing values, of surrounding blanks, and of leading zeros."""

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
