"""Warnings about classes and categories that only the test records have."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from singa_dask.data.codecs.equal_names import in_order, plain_name
from singa_dask.data.tables.column_values import as_texts
from singa_dask.survey.columns import ColumnSurvey, show_value
from singa_dask.survey.options import SurveyOptions
from singa_dask.survey.results import OutputSurvey, Rows
from singa_dask.survey.table_survey import TableSurvey
from singa_dask.wording import listed

# maximum number of categories that a warning lists
MAX_SHOWN = 6
# if a smaller share of the test records is affected, the column stays useful for the other records
RARE = 0.05


def classes_never_learned(table: TableSurvey, outputs: Sequence[OutputSurvey], rows: Rows) -> Iterator[str]:
    """Yield warnings about classes that only the test set has, if all records were read."""
    for column in (table.named[each.name] for each in outputs if each.is_label and table.is_whole):
        learned = set(pc.unique(column.values.take(rows)).to_pylist())
        if absent := [show_value(each) for each in column.distinct.to_pylist() if each not in learned]:
            yield f"{column.name}: only the test set has {listed(absent)}. Choose another --seed or --test-split"


def categories_never_learned(
    table: TableSurvey,
    features: Sequence[ColumnSurvey],
    parts: tuple[Rows, Rows],
    options: SurveyOptions,
    dates: ColumnSurvey | None,
) -> Iterator[str]:
    """Yield warnings about categories of features that occur in test records, but in no training record.

    ``parts`` are the rows to train and to test on. ``dates`` is the column by which the records are sorted, if any.
    """
    train, test = parts
    is_last = len(test) > 0 and train.max() < test.min()
    for column in features if len(test) else ():
        if column.kind != "string" or column.date:
            continue
        encoded = as_texts(column.values).fill_null("").dictionary_encode()
        names = pa.array([*map(plain_name, encoded.dictionary.to_pylist())], pa.string()).take(encoded.indices)
        learned, counts = set(pc.unique(names.take(train)).to_pylist()), Counter(names.take(test).to_pylist())
        if not (absent := in_order(name for name in counts if name not in learned)):
            continue
        share = sum(counts[name] for name in absent) / len(test)
        shown = listed([show_value(name) or "no value" for name in absent], MAX_SHOWN)
        seen = "" if table.is_whole else " that was read"
        warning = f"{column.name}: no training record{seen} has {shown}, but {share:.1%} of the test records do"
        if share < RARE:
            yield f"{warning}. Other columns decide about these records"
            continue
        drop = f"Pass --drop {shlex.quote(','.join([*options.drop, column.name]))} to leave the column out"
        if is_last and dates and not options.lags:
            random = shlex.quote(",".join([*options.drop, dates.name]))
            drop += f", or --drop {random} to test on records drawn at random"
        yield f"{warning}. The net cannot learn what no training record has. {drop}"
