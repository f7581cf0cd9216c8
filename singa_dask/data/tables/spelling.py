"""Spelling: how a table writes numbers (with separators and units), dates and missing values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

import pyarrow as pa

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field
from singa_dask.conf.mistakes import Finding
from singa_dask.data.tables.column_values import cast_known, column_kind, missing_of, whole
from singa_dask.data.tables.dates import MISSING_DATES, DateConf
from singa_dask.errors import DataError, FaultError, Remedy
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

# strings that mean a missing value: pandas' defaults, "?", and \N of Hive, MySQL and PostgreSQL
MISSING = (
    "", "#N/A", "#NA", "-nan", "-NaN", "<NA>", "?", "N/A", "NA", "NULL", "NaN", "None", "\\N", "n/a", "nan", "null"
)  # fmt: skip
PERCENT = "%"
PERCENT_RULE = "56 % is read as 56, so 0.56 means 0.56 %: multiply fractions by 100."
# numbers of booleans -> their texts in CSV
BOOLEAN_TEXTS = {"1": ("true", "True", "TRUE"), "0": ("false", "False", "FALSE")}
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
# a comma that may separate thousands
THOUSANDS_COMMA = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
# text around a number, without blanks and unit -> sign of the number; \0 stands for the digits
SIGNS = {"\0": 1.0, "+\0": 1.0, "-\0": -1.0, "\0-": -1.0, "(\0)": -1.0}
# RE2 patterns of marks that stand for several characters: blanks of any width, and apostrophes
BLANK = r"[\s\x{a0}\x{2007}\x{2009}\x{202f}]"
MARKS = {" ": BLANK, "'": "['\u2019]"}


class NumberConf(Conf):
    """Format of the numbers in a column of text: an entry of ``numbers``."""

    thousands: Annotated[str, Field(max_length=1)] = ""
    """Separator between groups of digits. A blank stands for one of any width, and ``'`` for either apostrophe."""
    decimal: Literal[".", ","] = "."
    """Mark between whole number and decimals."""
    unit: str = ""
    """Text before or behind each number, such as ``$``, ``EUR`` or ``%``. It is left out: 12.5 % is 12.5."""

    def rules(self) -> Iterator[Finding]:
        """Check that the marks for decimals and thousands are not ambiguous."""
        if self.thousands == self.decimal:
            yield ("thousands",), f"{self.thousands!r} is the decimal mark, too. Set decimal to the other one."
        if re.search(r"[\d+()-]", self.thousands):
            yield ("thousands",), f"{self.thousands!r} is a digit or a sign. Expected a separator such as ','."
        if re.search(r"[\d+()-]", self.unit):
            yield ("unit",), f"{self.unit!r} has digits or signs. Expected a text such as '$' or '%'."

    def _pattern(self) -> str:
        """Return the RE2 pattern of a number.

        Digits are in groups of three, or of two before the last three, as in India.
        """
        mark = MARKS.get(self.thousands, re.escape(self.thousands))
        grouped = rf"[1-9]\d{{0,2}}(?:{mark}\d{{3}})+|[1-9]\d?(?:{mark}\d{{2}})+{mark}\d{{3}}|" if mark else ""
        around = "|".join([r"[-+\x{2212}()]", BLANK, *([re.escape(self.unit.strip())] if self.unit.strip() else [])])
        decimals = rf"(?P<decimals>{re.escape(self.decimal)}\d+)?(?P<exponent>[eE][-+]?\d+)?"
        return rf"^(?P<before>(?:{around})*)(?P<whole>{grouped}\d*){decimals}(?P<after>(?:{around})*)$"

    def _sign(self, around: str) -> float:
        """Return the sign of a number, given the text around it.

        The result is 0 if the text is not a sign, or lacks the unit.
        """
        text, unit = "".join(around.split()).replace("\u2212", "-"), "".join(self.unit.split())
        return SIGNS.get(text.replace(unit, ""), 0.0) if not unit or text.count(unit) == 1 else 0.0

    def parse(self, texts: pa.Array) -> pa.Array:
        """Convert strings to float64. A string in another form becomes null."""
        parts = pc.extract_regex(texts, self._pattern())
        before, whole, decimals, exponent, after = (
            parts.field(parts.type.get_field_index(name))
            for name in ("before", "whole", "decimals", "exponent", "after")
        )
        around = pc.binary_join_element_wise(before, after, "\0").dictionary_encode()
        signs = pa.array([self._sign(text) for text in around.dictionary.to_pylist()], pa.float64()).take(
            around.indices
        )
        digits = pc.replace_substring_regex(whole, r"\D", "")
        behind = pc.utf8_slice_codeunits(decimals, 1)
        is_number = pc.and_(
            pc.greater(pc.add(pc.utf8_length(digits), pc.utf8_length(behind)), 0), pc.not_equal(signs, 0)
        )
        number = pc.binary_join_element_wise("0", digits, ".", behind, "0", exponent, "")
        return pc.multiply(pc.if_else(is_number, number, None).cast(pa.float64()), signs)

    def fault_of(self, text: str) -> str:
        """Return the reason why a string is not a number of this form."""
        marks = [f"thousands {self.thousands!r}"] if self.thousands else []
        marks += [f"unit {self.unit!r}"] if self.unit else []
        return f"{text!r} is not a number with {', '.join([*marks, f'decimal {self.decimal!r}'])}"

    def without_unit(self) -> NumberConf:
        """Return the form of numbers without the unit."""
        return self.model_copy(update={"unit": ""})

    def lacks_unit(self, text: str) -> bool:
        """Return whether a string would be a number of this form if it had the unit."""
        return bool(self.unit) and bool(self.without_unit().parse(pa.array([text]))[0].is_valid)


def refusal(where: str, column: str, text: str, forms: Mapping[str, NumberConf]) -> DataError:
    """Return the error for a string that is not a number.

    If the string only lacks the unit, the error includes advice.

    Parameters
    ----------
    where : str
        Place of the record.
    column : str
    text : str
        The string in ``column``.
    forms : mapping of str to NumberConf
        Forms of ``column``, and of all other columns whose strings lack the unit.
    """
    form = forms[column]
    message = f"{where}, column {column!r}: {form.fault_of(text)}."
    if not form.lacks_unit(text):
        return DataError(message)
    without = Spelling({name: each.without_unit() for name, each in forms.items()})
    setting = json.dumps(without.to_dict()["numbers"], ensure_ascii=False)
    remedy = Remedy("numbers", f"Set numbers: {setting}", (setting,))
    others = [name for name in forms if name != column]
    also = f" Numbers without a unit are also in: {', '.join(map(repr, others))}." if others else ""
    message += f" Write {form.unit!r} with each number.{also} {remedy.text} if no number of this table has it."
    if any(each.unit == PERCENT for each in forms.values()):
        message += f" {PERCENT_RULE}"
    return DataError(message, remedy=remedy)


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def not_a_number(field: str, hint: str = "") -> FaultError:
    """Return the error for a field that is not a number. The error suggests that it is a missing value."""
    return FaultError(f"{field!r} is not a number{hint}", Remedy("na_values"))


def fault_of(field: str) -> FaultError | None:
    """Return an error with the reason why a field is not a number; None for a number or an empty field."""
    if field in MISSING or field.lower() in ("true", "false"):
        return None
    if THOUSANDS_COMMA.fullmatch(field):
        return FaultError(
            f"{field!r} has a comma, for decimals or between thousands. Write numbers with a decimal point and without "
            "separators, or set numbers, with decimal: ',' or thousands: ','"
        )
    if DECIMAL_COMMA.fullmatch(field):
        return FaultError(f"{field!r} has a decimal comma. Write numbers with a decimal point")
    try:
        float(field)
    except ValueError:
        return not_a_number(field)
    return not_a_number(field) if "_" in field else None


class PlainForm(NumberConf):
    """Format of the numbers in a CSV file for which the job sets no ``numbers``.

    Strings are parsed to exactly the same numbers as in a CSV file.
    """

    booleans: bool = False
    """Whether the words true and false are numbers, too."""

    def parse(self, texts: pa.Array) -> pa.Array:
        trimmed = pc.utf8_trim(texts, " \t")
        for number, words in BOOLEAN_TEXTS.items() if self.booleans else ():
            trimmed = pc.if_else(pc.is_in(trimmed, pa.array(words)), number, trimmed)
        return cast_known(trimmed, pa.float64())

    def fault_of(self, text: str) -> str:
        text = text.strip()
        if self.booleans and not is_number(text):
            return f"{text!r} is not a boolean, as in the training data. Expected true, false, 1 or 0"
        return str(fault_of(text) or not_a_number(text))


@dataclass(frozen=True)
class Spelling:
    """Formats of the numbers, dates and missing values of a table, in files, frames or JSON.

    Attributes
    ----------
    numbers : mapping of str to NumberConf
        Format of the numbers, for each column with numbers that are written as text.
    na_values : tuple of str
        Words for a missing value. A word that is listed as a category or a class is a value.
    dates : mapping of str to DateConf
        Format of the dates and their parts, for each column of dates that is a feature.
    """

    numbers: Mapping[str, NumberConf] = field(default_factory=dict)
    na_values: tuple[str, ...] = ()
    dates: Mapping[str, DateConf] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Spelling:
        """Return the spelling that a job or a checkpoint describes."""
        numbers = {name: NumberConf(**form) for name, form in (described.get("numbers") or {}).items()}
        dates = {name: DateConf(**form) for name, form in (described.get("dates") or {}).items()}
        return cls(numbers, tuple(described.get("na_values") or ()), dates)

    def to_dict(self) -> dict[str, Any]:
        """Return the spelling as a dictionary for JSON, without empty values."""
        numbers = {name: form.model_dump(exclude_defaults=True) for name, form in self.numbers.items()}
        dates = {name: form.to_dict() for name, form in self.dates.items()}
        described = {"numbers": numbers, "na_values": [*self.na_values], "dates": dates}
        return {key: value for key, value in described.items() if value}

    def over(self, known: Spelling) -> Spelling:
        """Return this spelling, with the entries of ``known`` for all columns that this spelling lacks.

        ``known`` is the spelling of the training data.
        """
        words = dict.fromkeys((*known.na_values, *self.na_values))
        return Spelling({**known.numbers, **self.numbers}, tuple(words), {**known.dates, **self.dates})

    def with_plain(self, names: Iterable[str], booleans: Collection[str] = ()) -> Spelling:
        """Return a spelling that also reads strings in the columns ``names`` as numbers, as CSV does.

        In the columns ``booleans``, it also reads the words true and false.
        """
        forms = {name: PlainForm(booleans=name in booleans) for name in names}
        return replace(self, numbers={**forms, **self.numbers})

    def words_of(self, column: str, listed: Mapping[str, Collection[str]] = MappingProxyType({})) -> list[str]:
        """Return the words for missing values in a column, except those ``listed`` as its categories."""
        words = [*self.na_values, *(MISSING if column in self.numbers or column in self.dates else ())]
        words += MISSING_DATES if column in self.dates else ()
        return [word for word in words if word not in listed.get(column, ())]

    def read(
        self,
        table: pa.Table,
        listed: Mapping[str, Collection[str]],
        where: Callable[[int], str],
        skipped: Collection[str],
    ) -> pa.Table:
        """Parse strings as numbers and times, and replace words for missing values by null.

        Parameters
        ----------
        table : pyarrow.Table
        listed : mapping of str to collection of str
            Categories and classes by column. They are values, even if they are also words for missing values.
        where : callable
            Takes a row, and returns its place for errors.
        skipped : collection of str
            Columns of text, which do not change.

        Raises
        ------
        DataError
            A string is not a number in the form of its column, or a value is not a date in the form of its column.
        """
        for i, name in enumerate(table.column_names if self.numbers or self.na_values or self.dates else ()):
            is_text, date = column_kind(table.schema[i].type) == "string", self.dates.get(name)
            if name in skipped or not (is_text or date):
                continue
            column = whole(table.column(i))
            if is_text:
                column = self._without_words(column, name, listed)
            if form := date or self.numbers.get(name):
                read = form.parse(column)
                wrong = pc.and_(pa.array(~missing_of(column)), read.is_null())
                if (row := pc.index(wrong, True).as_py()) >= 0:
                    if date:
                        raise date.refusal(where(row), name, column[row].as_py())
                    forms = {name: self.numbers[name], **self._lacking_units(table, i + 1, listed, skipped)}
                    raise refusal(where(row), name, column[row].as_py(), forms)
                column = read
            table = table.set_column(i, name, column)
        return table

    def _without_words(self, column: pa.Array, name: str, listed: Mapping[str, Collection[str]]) -> pa.Array:
        """Return a column of strings with null for words that mean a missing value."""
        texts = column.cast(pa.string())
        if words := self.words_of(name, listed):
            is_word = pc.is_in(pc.utf8_trim_whitespace(texts), pa.array(words, pa.string()))
            texts = pc.if_else(is_word, None, texts)
        return texts

    def _lacking_units(
        self, table: pa.Table, first: int, listed: Mapping[str, Collection[str]], skipped: Collection[str]
    ) -> dict[str, NumberConf]:
        """Return the forms of columns, from index ``first`` on, whose first wrong string only lacks the unit."""
        found = {}
        for i in range(first, table.num_columns):
            name = table.column_names[i]
            form = self.numbers.get(name)
            if form and form.unit and name not in skipped and column_kind(table.schema[i].type) == "string":
                texts = self._without_words(whole(table.column(i)), name, listed)
                wrong = texts.filter(pc.and_(texts.is_valid(), form.parse(texts).is_null()))
                if len(wrong) and form.lacks_unit(wrong[0].as_py()):
                    found[name] = form
        return found


NO_SPELLING = Spelling()
