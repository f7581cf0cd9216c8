"""Dates and times as features: their calendar parts, such as year, month, weekday and hour."""

from __future__ import annotations

import datetime
import json
import zoneinfo
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, Shorthand
from singa_dask.conf.mistakes import Finding
from singa_dask.data.tables.column_values import cast_known
from singa_dask.errors import DataError, Remedy
from singa_dask.lazy import LazyModule

pc = LazyModule("pyarrow.compute")

# part -> Arrow function, and the values of the part; with values, the part is one-hot encoded
PARTS: dict[str, tuple[str, range]] = {
    "year": ("year", range(0)),
    "month": ("month", range(1, 13)),
    "day": ("day", range(0)),
    "weekday": ("day_of_week", range(7)),
    "dayofyear": ("day_of_year", range(0)),
    "hour": ("hour", range(24)),
    "minute": ("minute", range(0)),
}
# words for missing dates, in addition to the words for missing values in any column
MISSING_DATES = ("NaT",)
PATTERN = (
    r"^(?:(?P<year>\d{4})(?:[-/.](?P<month>\d\d?)[-/.](?P<day>\d\d?)|(?P<month2>\d\d)(?P<day2>\d\d))"
    r"|(?P<first>\d\d?)[-/.](?P<second>\d\d?)[-/.](?P<year2>\d{4}))"
    r"(?:(?:T|,? +)(?P<hour>\d\d?):(?P<minute>\d\d)(?::(?P<seconds>\d\d)(?:[.,]\d+)?)?"
    r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)? ?(?P<zone>[Zz]|UTC|GMT|[-+]\d\d(?::?\d\d)?)?)?$"
)
# hours of times with am or pm
HOURS_OF_HALF = [text for hour in range(1, 13) for text in dict.fromkeys((str(hour), f"{hour:02}"))]
# Arrow does not apply daylight saving time from this time on
END = datetime.datetime(2037, 1, 1, tzinfo=datetime.timezone.utc)
EXPECTED = "Expected a date such as 2024-01-31, or 2024-01-31 17:30"


class DateConf(Conf):
    """Parts of the dates in a column, and their format: an entry of ``dates``."""

    parts: list[Literal["year", "month", "day", "weekday", "dayofyear", "hour", "minute"]] = Field(min_length=1)
    """What a record consists of. Monday is weekday 0. Month, weekday and hour become a value 0 or 1 for each of their
    values, the other parts are numbers."""
    day_first: bool | None = None
    """Whether 1/2/2024 is the first of February. By default such dates are refused; dates that begin with the year are
    always read."""
    zone: str = ""
    """Time zone in which the parts are computed, such as ``Europe/Berlin`` or ``UTC``, if the dates have time zones or
    offsets from UTC. By default such dates are refused; with a zone, dates without one are refused."""

    def rules(self) -> Iterator[Finding]:
        """Check that parts are different, and that the time zone is known."""
        if len({*self.parts}) < len(self.parts):
            yield ("parts",), "a part occurs twice."
        try:
            zoneinfo.ZoneInfo(self.zone or "UTC")
        except (OSError, ValueError):
            yield ("zone",), f"{self.zone!r} is not a time zone. Expected a name such as 'UTC' or 'Europe/Berlin'."

    def to_dict(self) -> dict[str, Any]:
        """Return the form as a dictionary for JSON, without default values."""
        return self.model_dump(exclude_defaults=True)

    def names(self, column: str) -> list[str]:
        """Return the names of the values: ``when.year``, or ``when.month=1`` for a value that is 0 or 1."""
        values = [(part, PARTS[part][1]) for part in self.parts]
        return [f"{column}.{part}{end}" for part, of in values for end in ([f"={each}" for each in of] or [""])]

    @property
    def example(self) -> str:
        """A date in this form."""
        return f"2024-01-31T17:30:00{'+00:00' * bool(self.zone)}"

    @property
    def are_flags(self) -> npt.NDArray[np.bool_]:
        """Mask of the values of a record that are 0 or 1."""
        return np.array([bool(PARTS[part][1]) for part in self.parts for _ in PARTS[part][1] or (0,)])

    def parse(self, column: pa.Array) -> pa.Array:
        """Convert strings, numbers such as 20240131, dates or times to Arrow timestamps in `zone`.

        A value that is not a date in this form becomes null. A column of another type is returned unchanged.
        """
        times = self._times_of(column)
        if self.zone in ("", "UTC") or not pa.types.is_timestamp(times.type):
            return times
        return pc.if_else(pc.less(times, pa.scalar(END, pa.timestamp("s", "UTC")).cast(times.type)), times, None)

    def _times_of(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if pa.types.is_timestamp(kind):
            if bool(kind.tz) != bool(self.zone):
                return pa.nulls(len(column), pa.timestamp(kind.unit, self.zone or None))
            return column.cast(pa.timestamp(kind.unit, self.zone)) if self.zone else column
        if pa.types.is_date(kind):
            times = column.cast(pa.timestamp("ms"))
            return pa.nulls(len(column), pa.timestamp("ms", self.zone)) if self.zone else times
        if pa.types.is_floating(kind):
            whole = pc.if_else(pc.equal(pc.floor(column), column), column, None)
            return self._parse_texts(whole.cast(pa.int64(), safe=False).cast(pa.string()))
        if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self._parse_texts(column.cast(pa.string()))
        return pa.nulls(len(column), pa.timestamp("s", self.zone or None)) if pa.types.is_null(kind) else column

    def _parse_texts(self, texts: pa.Array) -> pa.Array:
        """Convert strings to timestamps in seconds; other strings become null."""
        found = pc.extract_regex(pc.utf8_trim_whitespace(texts), PATTERN)
        part = {each.name: found.field(i) for i, each in enumerate(found.type)}
        day, month = ("first", "second") if self.day_first else ("second", "first")
        hours = pc.if_else(pc.equal(part["hour"], ""), "0", part["hour"]).cast(pa.int64())
        half = pc.utf8_lower(part["half"])
        twelve = pc.add(pc.if_else(pc.equal(hours, 12), 0, hours), pc.if_else(pc.equal(half, "p"), 12, 0))
        hours = pc.if_else(pc.equal(half, ""), hours, twelve)
        is_offset = pc.match_substring_regex(part["zone"], "^[-+]")
        zones = pc.if_else(is_offset, part["zone"], pc.if_else(pc.equal(part["zone"], ""), "", "Z"))
        iso = pc.binary_join_element_wise(
            part["year"], part["year2"], "-", _two_digits(part["month"], part["month2"], part[month]), "-",
            _two_digits(part["day"], part["day2"], part[day]), " ", _two_digits(hours.cast(pa.string())), ":",
            _two_digits(part["minute"]), ":", _two_digits(part["seconds"]), zones, "",
        )  # fmt: skip
        is_read = pc.equal(pc.equal(part["zone"], ""), not self.zone)
        # 13 PM is not a time
        is_read = pc.and_(is_read, pc.or_(pc.equal(half, ""), pc.is_in(part["hour"], pa.array(HOURS_OF_HALF))))
        if self.day_first is None:
            is_read = pc.and_(is_read, pc.equal(part["first"], ""))
        # days and times that do not exist become null
        return cast_known(pc.if_else(is_read, iso, None), pa.timestamp("s", self.zone or None))

    def refusal(self, where: str, column: str, value: Any) -> DataError:
        """Return the error for a value that is not a date in this form."""
        message, orders = f"{where}, column {column!r}: {self._fault_of(value)}.", self._orders_of(value)
        if not orders:
            return DataError(message)
        setting = json.dumps({column: orders[0].to_dict()}, ensure_ascii=False)
        remedy = Remedy("dates", f"Set dates: {setting}", (setting,))
        message += f" {remedy.text}{', or day_first to false if the month is first' * (len(orders) > 1)}."
        return DataError(message, remedy=remedy)

    def _orders_of(self, value: Any) -> list[DateConf]:
        """Return copies of this form with another order of day and month in which a value is a date."""
        if not isinstance(value, str):
            return []
        orders = [self.model_copy(update={"day_first": first}) for first in (True, False) if first != self.day_first]
        return [each for each in orders if each.parse(pa.array([value]))[0].is_valid]

    def _fault_of(self, value: Any) -> str:
        """Return what is wrong with a value, and how to correct the value."""
        shown = repr(value if isinstance(value, (str, int, float)) else str(value))
        column, other = pa.array([value]), self.model_copy(update={"zone": "" if self.zone else "UTC"})
        if other.parse(column)[0].is_valid:
            if self.zone:
                return f"{shown} has no time zone. Write its offset from UTC, as in 2024-01-31T17:30:00+01:00"
            return f"{shown} has a time zone. Write dates without one, or set the key zone of this column in dates"
        if self._times_of(column)[0].is_valid:
            return f"{shown} is after 2036, where summer time is not known. Set the zone of this column in dates to UTC"
        if self._orders_of(value):
            return f"{shown} has the year last. Write it as 2024-01-31, or set the order of day and month"
        return f"{shown} is not a date. {EXPECTED}"

    def values(self, times: pa.Array) -> npt.NDArray[np.float64]:
        """Return the parts of timestamps from `parse`, (n, values); NaN for a missing timestamp."""
        local = pc.local_timestamp(times) if times.type.tz else times
        columns = []
        for part in self.parts:
            function, of = PARTS[part]
            numbers = getattr(pc, function)(local).cast(pa.float64()).to_numpy(zero_copy_only=False)[:, None]
            columns.append(np.where(np.isnan(numbers), np.nan, numbers == np.array(of)) if of else numbers)
        return np.concatenate(columns, axis=1)


def _as_block(value: object) -> Any:
    """Return a list of parts as a block."""
    return {"parts": value} if isinstance(value, (list, tuple)) else value


def _forms(block: Any) -> list[Any]:
    return [{"type": "array", "items": {"enum": [*PARTS]}, "minItems": 1}, block]


Dates = Annotated[DateConf, Shorthand(_as_block, _forms)]
"""An entry of ``dates``, which may be written as the list of its parts."""


def _two_digits(*texts: pa.Array) -> pa.Array:
    """Join strings, and add leading zeros up to two digits. At most one string is not empty."""
    return pc.utf8_lpad(pc.binary_join_element_wise(*texts, ""), 2, "0")


def date_texts(values: Iterable[Any]) -> pa.Array:
    """Convert Python's dates and times to strings. Each string keeps its offset from UTC."""
    return pa.array(map(_text_of, values), pa.string())


def _text_of(value: Any) -> str | None:
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return None if value is None else str(value)
