"""Options of tables with named columns; ``store_conf`` of the job file has most of them as keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from singa_dask.conf.kinds import Field as KeyField
from singa_dask.conf.kinds import Many, Size
from singa_dask.conf.mistakes import Finding
from singa_dask.data.blocks import BLOCK_BYTES
from singa_dask.data.codecs.tokens import TextConf
from singa_dask.data.split import SplitConf
from singa_dask.data.stores.store import StoreOptions
from singa_dask.data.tables.dates import Dates
from singa_dask.data.tables.lags import LagsConf
from singa_dask.data.tables.spelling import NumberConf, Spelling

# options that contain names of columns
NAMING = (
    "features", "label", "target", "weight", "categories", "unknown", "texts", "numbers", "na_values", "missing",
    "unlabelled", "lags", "dates",
)  # fmt: skip


class NamedColumns(StoreOptions):
    """Use of the columns of a table, and the form of CSV."""

    separator: str = KeyField(default=",", min_length=1)
    """Characters that each separate values of a CSV line; one character for a table with named columns. Excel's first
    line ``sep=;`` takes precedence."""
    has_label: bool = True
    """Whether a CSV line starts with its label; for a table with named columns, whether label, target and weight are
    read."""
    features: Many[str] = KeyField(default=[])
    """Columns of a table that a record consists of: names or patterns, e.g. ``pixel*``. By default all columns of
    numbers except label, target and weight. A column of vectors, lists of numbers of one length, gives as many values;
    by default vectors are features of a table without columns of numbers."""
    label: Many[str] = KeyField(default=[])
    """Column of a table with the label: integers, or strings, which become the names of the classes. Several columns
    are several labels of a record, each with its own classes, for LabelInput layers. If features, label and target are
    not given, the only column called label, labels, y, class, target or targets."""
    target: Many[str] = KeyField(default=[])
    """Columns of a table with numbers to predict, the values of a TargetInput layer."""
    weight: str = ""
    """Column of a table with the weight of each record in training, the values of a WeightInput layer: numbers from 0
    on."""
    missing: float | str = "error"
    """Treatment of missing values, which are nulls, NaN, and in CSV empty fields and pandas' names for them: error,
    skip (leave the record out), mean (replace those of features by their mean in the training data), or a number that
    replaces those of features."""
    unlabelled: Literal["error", "skip"] = "error"
    """Records of a table without a label or target: error, or skip (leave the record out)."""
    categories: dict[str, list[str]] = KeyField(default={})
    """Columns of a table whose values are names, and these names in order; if the list is empty, the sorted names in
    the training data. The name ``''`` stands for missing values. A listed name is not a missing value, e.g. a country
    NA in CSV."""
    encoding: Literal["one_hot", "index"] = "one_hot"
    """Whether a feature among categories becomes a value 0 or 1 for each name, or the index of its name."""
    unknown: Literal["error", "ignore"] = "error"
    """Treatment of unknown categories of a feature: error, or ignore (read them as zeros, which needs ``one_hot``)."""
    texts: dict[str, TextConf] = KeyField(default={})
    """Columns of a table whose values are texts, and their encoding: ``{text: {length: 64}}``. The vocabulary is
    learned from the training data, and kept in checkpoints."""
    numbers: dict[str, NumberConf] = KeyField(default={})
    """Columns of a table whose numbers are texts, and their form: ``{price: {thousands: ",", unit: "$"}}``. Checkpoints
    keep it, and ``predict`` and ``serve`` read such texts, or numbers."""
    dates: dict[str, Dates] = KeyField(default={})
    """Columns of a table whose values are dates, and the parts of these dates that a record consists of:
    ``{when: [year, month, weekday, hour]}``. Month, weekday and hour become a value 0 or 1 for each of their values.
    Checkpoints keep it."""
    na_values: list[str] = KeyField(default=[])
    """Words that mean a missing value, such as unknown, in all columns of a table except texts. A word that
    ``categories`` lists is a name there."""
    lags: LagsConf | None = None
    """Earlier values of columns of a time series, taken from preceding records: ``{columns: load, n: 3}`` adds
    load_lag1 to load_lag3 to a table that lacks them."""
    header: bool | None = None
    """Whether a CSV file begins with a line of column names; detected if not given. If false, the columns of a table
    are called 1, 2, ... by position."""
    quotes: bool | None = None
    """Whether fields of a CSV table may be in double quotes. If false, a quote is a character of its field. If not
    given, quoted texts of several lines are refused where each of their lines could be a record."""
    charset: str = "utf-8"
    """Encoding of a CSV table, by Python's name, such as latin-1; it must extend ASCII."""

    @property
    def spelling(self) -> Spelling:
        """Form of numbers and dates, and words for missing values."""
        return Spelling(self.numbers, tuple(self.na_values), self.dates)

    def rules(self) -> Iterator[Finding]:
        """Refuse an unknown word for missing values."""
        if isinstance(self.missing, str) and self.missing not in ("error", "skip", "mean"):
            yield ("missing",), f"expected error, skip, mean or a number, got {self.missing!r}."
        if self.unknown == "ignore" and self.encoding == "index":
            yield ("unknown",), "ignore makes zeros of unknown categories: expected encoding: one_hot."


class TableOptions(NamedColumns):
    """Options of tables with named columns."""

    format: Literal["", "csv", "parquet", "jsonl", "whole"] = ""
    """``whole``: a JSON array of objects, or a sheet of Excel, held in memory. Detected by suffix or first bytes."""
    facts: dict[str, Any] | None = None
    """Facts of the training data, `TableFacts.to_dict`, to read other data the same way."""
    block_bytes: Size = BLOCK_BYTES
    """Approximate length of a block of CSV."""
    split: SplitConf | None = None
    """Part of the records that is read; by default all."""
    tolerant: bool = False
    """Whether a loader skips wrong records; opening then learns from the others."""
    blank_texts: bool = False
    """Whether a missing or blank text is read as an empty text, as ``predict`` does; else it is a missing value."""
    fill_absent: bool = False
    """Whether columns of the training data that the whole table lacks are read as missing values; else an error."""
    may_be_empty: bool = False
    """Whether a table without records is read, with the facts of the training data; else it is an error."""
    forecasts: list[float | str] | None = None
    """Predictions for the newest records of a series that lack their values, see `LagsConf.with_forecasts`."""
