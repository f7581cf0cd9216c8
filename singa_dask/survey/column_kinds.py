"""Kinds of columns: find ids, dates, categories and texts, and the reason why a column is no feature."""

from __future__ import annotations

import re

import numpy as np
import pyarrow.compute as pc

from singa_dask.data.codecs.tokens import MIN_WORDS, TextMeasure
from singa_dask.data.tables.column_values import as_floats
from singa_dask.survey.columns import DATES, MANY_CATEGORIES, ColumnSurvey
from singa_dask.survey.numbers import known_unit

# minimum number of records to detect a column of ids
MIN_NUMBERED = 10
# maximum number of strings that are searched for words
MAX_MEASURED = 1000
# strings of several words are names if each occurs this often on average
OFTEN = 20
ID = re.compile(r"(?i:id|index|uuid|guid|row|rowid|.*[ _.-]id|unnamed: \d+)|.*[a-z]I[dD]")
CODE = re.compile(r"(?i:.*(?:class|code|type|zip)|(?:.*[ _.-])?(?:plz|postal|post|zone|id))|.*[a-z](?:Zone|I[dD])")
# numbers in this range are codes if all have the same number of digits; smaller numbers may be years, larger numbers
# Unix times
SMALLEST_CODE, LARGEST_CODE = 10**4, 10**9
# numbers from SMALLEST_NAME on may be names if at most MAX_NAMES differ, each in MIN_REPEATED records on average
MAX_NAMES, SMALLEST_NAME, MIN_REPEATED = 20, 100, 20
# smaller numbers, from SMALLEST_OF_MANY on, may be names if at least MIN_SMALLER differ and the largest exceeds
# LARGEST_AGE, so that it is no age or percentage
MIN_SMALLER, SMALLEST_OF_MANY, LARGEST_AGE = 5, 10, 120
# numbers whose common divisor is larger, such as 10, 20 and 50, are amounts
MAX_DIVISOR = 4
YEARS = (1900, 2100)
# numbers that may mean a missing value if at least SENTINEL_SHARE of the values, and MIN_SENTINELS, are equal to them
SENTINELS = (-1, -9, -99, -999, -9999, -99999, 99, 999, 9999, 99999)
SENTINEL_SHARE, MIN_SENTINELS = 0.01, 5
# reasons to leave out a column because it identifies records
KEYS = ("texts, different in each record", "an id by its name", "numbers the records")
# beginning of the reason to leave out a column with too many different texts
TEXTS = "texts"
YES_OR_NO = frozenset({"yes", "no", "y", "n", "true", "false", "t", "f"})


def kind_of(column: ColumnSurvey) -> str:
    """Return a word for users that describes the values of a column, e.g. ``"category"``.

    The result is number, money, percent, date, boolean, category, text, id, index, empty, or the kind of `ColumnSurvey`
    for other values.
    """
    if column.is_index or not column.name:
        return "index" if column.name or len(column.present) else "empty"
    if not len(column.present):
        return "empty"
    if column.is_date:
        return column.kind if column.kind in DATES else "date"
    reason = unfit(column, is_wide=False)
    if column.kind == "number":
        unit = next((form.unit for form in column.forms), "")
        if reason in KEYS:
            return "id"
        return "percent" if unit in ("%", "\u2030") else "money" if known_unit(unit) else "number"
    if column.kind != "string":
        return column.kind
    if column.fault:
        return "number"
    if {text.lower() for text in column.distinct[:3].to_pylist()} <= YES_OR_NO and len(column.distinct) <= 2:
        return "boolean"
    if has_words(column):
        return "text"
    if reason == KEYS[0]:
        return "id"
    return "category" if column.are_categories(column.n) else "text"


def is_like_code(column: ColumnSurvey) -> bool:
    """Return whether numbers look like codes, by the column's name or their equal number of digits."""
    if column.forms or not column.is_whole or len(column.distinct) < 3:
        return False
    least, most = column.numbers.min(), column.numbers.max()
    are_alike = SMALLEST_CODE <= least <= most < LARGEST_CODE and len(f"{least:.0f}") == len(f"{most:.0f}")
    return are_alike or bool(CODE.fullmatch(column.name))


def are_like_names(column: ColumnSurvey) -> bool:
    """Return whether a few whole numbers that repeat look like names, such as numbers of shops.

    Counts, years, and numbers at equal distances or with a common divisor look like amounts.
    """
    if column.forms or not column.is_whole:
        return False
    known = len(column.distinct)
    if not 3 <= known <= min(MAX_NAMES, column.n_present // MIN_REPEATED):
        return False
    numbers = as_floats(column.distinct)
    least, most = numbers[0], numbers[-1]
    smallest = SMALLEST_OF_MANY if known >= MIN_SMALLER and most > LARGEST_AGE else SMALLEST_NAME
    if not smallest <= least <= most < LARGEST_CODE or YEARS[0] <= least <= most <= YEARS[1]:
        return False
    gaps = np.diff(numbers).astype(np.int64)
    is_dense = 2 * known > (most - least) / np.gcd.reduce(gaps) + 1
    return not is_dense and bool(np.gcd.reduce(numbers.astype(np.int64)) <= MAX_DIVISOR)


def sentinel_of(column: ColumnSurvey) -> tuple[float, int] | None:
    """Return a number that may mean a missing value, such as -999, and its count; None if there is none.

    Such a number is frequent, and far from all other numbers.
    """
    if column.kind != "number" or column.date or not len(column.present):
        return None
    numbers = column.numbers
    for value in SENTINELS:
        is_value = numbers == value
        n, others = int(is_value.sum()), numbers[~is_value]
        if n >= max(MIN_SENTINELS, SENTINEL_SHARE * len(numbers)) and len(others):
            low, high = others.min(), others.max()
            if low < high and max(low - value, value - high) > high - low:
                return value, n
    return None


def unfit(column: ColumnSurvey, is_wide: bool) -> str:
    """Return the reason why a column is no feature; empty if the column is a feature.

    In a table of many columns, such as pixels, constant columns are features, too.
    """
    if column.is_index or not column.name:
        # a separator at the end of each line makes an empty column without a name
        return "index" if column.name or len(column.present) else "no values"
    if column.is_date and len(column.present):
        return "" if column.date else "dates: to learn from their parts, set the key dates of the job"
    if column.kind == "vector" and len(column.present):
        return "" if len(pc.unique(pc.list_value_length(column.present))) == 1 else "lists of different lengths"
    if column.kind not in ("number", "boolean", "string"):
        return "no values" if column.kind in ("empty", "vector") else column.kind
    known = len(column.distinct)
    if column.kind == "number":
        # nets read float64, in which different integers of more than 53 bits can be equal
        known = len(np.unique(as_floats(column.distinct)))
    if known < 2:
        return "no values" if not known else "" if is_wide and column.kind == "number" else "constant"
    if column.kind == "string":
        if column.fault or column.are_categories(column.n):
            return ""
        return KEYS[0] if known == column.n else f"{TEXTS}, {known} different"
    if ID.fullmatch(column.name) and column.is_whole:
        return KEYS[1]
    if is_like_id(column):
        steps = np.diff(np.sort(column.numbers))
        if steps.min() == steps.max() and (steps[0] == 1 or (np.diff(column.numbers) == steps[0]).all()):
            return KEYS[2]
    return ""


def is_like_id(column: ColumnSurvey) -> bool:
    """Return whether the column has a different whole number in each record."""
    return not column.date and column.is_whole and column.n >= MIN_NUMBERED and len(column.distinct) == column.n


def has_words(column: ColumnSurvey) -> bool:
    """Return whether the values are texts of several words that do not repeat as often as names."""
    if column.kind != "string" or column.fault or column.date:
        return False
    if len(column.distinct) <= MANY_CATEGORIES and OFTEN * len(column.distinct) <= column.n_present:
        return False
    return TextMeasure.of_columns([{"": column.present[:MAX_MEASURED]}])[""].median >= MIN_WORDS
