"""Columns of dates as features: the form of dates (`DateConf`), and parts such as month and hour."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from singa_dask.data.tables.dates import DateConf
from singa_dask.errors import ConfigError
from singa_dask.survey.columns import ColumnSurvey
from singa_dask.survey.results import Note
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

# minimum number of different values of each part in a table; a part with fewer values says little about new records
ENOUGH = {"year": 2, "month": 12, "weekday": 7, "hour": 2}
# minimum number of different days of the month for the part weekday: for yearly or monthly dates, weekdays mean nothing
ENOUGH_DAYS = 10


def with_dates(table: TableSurvey, but: Collection[str]) -> TableSurvey:
    """Set `date` in each column of dates that can be a feature, except the columns ``but``."""
    columns = [each if each.name in but else replace(each, date=_form_of(each)) for each in table.columns]
    return replace(table, columns=columns)


def _form_of(column: ColumnSurvey) -> DateConf | None:
    """Return the form of dates, with the parts that have enough different values; None without parts."""
    forms = _forms_of(column)
    if len(forms) != 1:
        return None
    times = forms[0].parse(column.present)
    of_part = {part: forms[0].model_copy(update={"parts": [part]}) for part in (*ENOUGH, "day")}
    n_values = {part: len(np.unique(form.values(times), axis=0)) for part, form in of_part.items()}
    parts = [part for part, n in ENOUGH.items() if n_values[part] >= n]
    if "weekday" in parts and n_values["day"] < ENOUGH_DAYS:
        parts.remove("weekday")
    return forms[0].model_copy(update={"parts": parts}) if parts else None


def _forms_of(column: ColumnSurvey) -> list[DateConf]:
    """Return the forms in which all values are dates."""
    if not (column.is_date and len(column.present)):
        return []
    zone = getattr(column.values.type, "tz", None) or ""
    forms = [DateConf(parts=["year"], zone=zone)] if _is_zone(zone) else []
    orders = [(zone, first) for zone in ("", "UTC") for first in (None, True, False)]
    forms += [DateConf(parts=["year"], day_first=first, zone=zone) for zone, first in orders]
    read = [form for form in forms if _reads(form, column.present)]
    # if the year comes first, the order of day and month makes no difference
    return read[:1] if read and read[0].day_first is None else read


def _is_zone(zone: str) -> bool:
    try:
        DateConf.model_validate({"parts": ["year"], "zone": zone})
    except (ConfigError, ValueError):
        return False
    return True


def _reads(form: DateConf, values: pa.Array) -> bool:
    times = form.parse(values)
    return pa.types.is_timestamp(times.type) and not times.null_count


def date_notes(used: Sequence[ColumnSurvey]) -> Iterator[Note]:
    """Yield a note on each column of dates that is a feature: an example, and the parts."""
    for each in used:
        if each.date:
            said = [f"{key} {value}" for key, value in each.date.to_dict().items() if key != "parts"]
            done = f"read as {', '.join(each.date.parts)}{f' ({listed(said)})' * bool(said)}"
            yield Note(each.name, f"dates such as {str(each.present[0])!r}", len(each.present), done)


def date_doubts(table: TableSurvey) -> Iterator[str]:
    """Yield a warning about each ambiguous column of dates, with dates such as 1/2/2024."""
    for each in table.columns:
        if each.date is None and len(_forms_of(each)) > 1:
            yield (
                f"{each.name}: dates such as {str(each.present[0])!r} may have the day or the month first, so they are "
                "left out. To learn from them, set day_first and parts in the key dates of the job"
            )
