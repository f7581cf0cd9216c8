"""Records and labels in memory for a trained net: arrays, tables and pictures, encoded as in training."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from singa_dask.arrays import Array
from singa_dask.data.codecs.plain_arrays import as_array, as_stored, check_numbers
from singa_dask.data.codecs.record_values import value_name
from singa_dask.data.stores.images.image_decoding import decode_image, image_pixels
from singa_dask.data.tables.column_names import absent_warning, as_spelled, refuse_absent, refuse_twice
from singa_dask.data.tables.column_values import as_floats, column_kind, missing_rows, whole
from singa_dask.data.tables.encoder import FILLED, ZEROS, TableEncoder
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.fill_counts import FillCounts
from singa_dask.data.tables.frames import as_columns, as_table, is_frame, names_of
from singa_dask.data.tables.percents import count_percents, percent_columns, percent_warnings
from singa_dask.data.tables.row_encoder import RowEncoder
from singa_dask.data.tables.scaling import Scaling
from singa_dask.data.tables.spec import TableSpec
from singa_dask.data.tables.spelling import Spelling
from singa_dask.data.types import Arrays, Field
from singa_dask.errors import DataError
from singa_dask.inputs.record_shapes import check_shape
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.wording import listed

# number of rows of a data frame that are searched for gaps at a time
CHUNK_ROWS = 1 << 16
# number of axes of a picture; a mean_value or std_value of at least this number is for bytes, not for values from 0 to
# 1
IMAGE_AXES, MIN_BYTE_SCALE = 2, 16
# types of arrays of numbers that are read without advice
PLAIN_TYPES = (np.dtype(np.float32), np.dtype(np.float64))
# maximum number of categories that a description lists for a column
MAX_SHOWN = 100


class MemoryRecords(ABC):
    """``n`` records in memory.

    ``n_later`` is the number of further records of a time series. These cannot be read until the last of the ``n``
    records is predicted.

    Attributes
    ----------
    n_left_out : int
        Number of records that are skipped because of missing values.
    warning : str
        Warning about gaps in the times of a series, or about pictures or percent columns whose range differs from the
        training data. Usually empty.
    counts : FillCounts or None
        Number of missing values that `read` has filled in; None if they are not counted.
    """

    n: int
    n_later = 0
    n_left_out = 0
    warning = ""
    counts: FillCounts | None = None

    @abstractmethod
    def read(self, first: int, stop: int) -> Arrays:
        """Return the fields of the records from ``first`` to ``stop``, for an input layer.

        If a record is wrong, a DataError with its row is raised.
        """


def is_of(data: Any, package: str, *names: str) -> bool:
    """Return whether ``data`` is an instance of a class of a package, without importing the package."""
    module = sys.modules.get(package)
    return module is not None and isinstance(data, tuple(getattr(module, name) for name in names))


class MemoryReading:
    """Reads records in memory as an input layer with the block ``conf`` reads a store.

    The object does not depend on the records, so it can be used for any number of requests.

    Parameters
    ----------
    conf : StoreConf
    facts : TableFacts or None
        Meaning of the columns, if the net was trained on named columns.
    outputs : bool
        Whether to read also labels and targets from the columns.
    skips : bool
        Whether to skip records with missing values if the job sets ``missing: skip``. If False, missing values are
        errors.
    scaling : Scaling, optional
        Mean and deviation of the values in the training data, if they are known.
    """

    def __init__(
        self,
        conf: StoreConf,
        facts: TableFacts | None,
        *,
        outputs: bool = False,
        skips: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        self._conf, self._facts = conf, facts
        self._spelling = conf.spelling if facts is None else _spelling(conf, facts)
        self._named = _wanted(conf, facts)
        self._columns = None if facts is None else _Columns(conf, facts, self._spelling, outputs, skips, scaling)
        # arrays of these types and shape can be read without a warning or advice
        may_warn = len(conf.shape) >= IMAGE_AXES and bool(conf.mean_value or conf.std_value)
        is_encoded = facts is not None and len(facts.features) != len(facts.names)
        self._plain_types = () if may_warn or is_encoded else PLAIN_TYPES
        self._row_shape = (1, *conf.shape) if conf.layout != "NHWC" else ()

    def plain(self, x: Any, name: str = "x") -> tuple[Arrays, list[str]] | None:
        """Return the fields of a single plain record, and the columns whose missing number was filled in.

        The result is None for other data, which `records` has to read. A plain record is an array, or a dict whose
        values `RowEncoder` knows.
        """
        if type(x) is np.ndarray:
            if x.dtype not in self._plain_types or x.shape != self._row_shape:
                return None
            return {"data": as_stored(x, _floats(self._conf), f"{name}, row")}, []
        if type(x) is list and len(x) == 1:
            x = x[0]
        return self._columns.rows.encode(x) if type(x) is dict and self._columns and self._columns.rows else None

    def records(self, x: Any, name: str = "x", forecasts: Sequence[Any] | None = None) -> MemoryRecords:
        """Return data as records that the input layer can read.

        Parameters
        ----------
        x : ndarray, DataFrame, Table, dict of columns, list of dicts, or sequence of pictures
        name : str
            Name of the data in errors.
        forecasts : sequence, optional
            See `LagsConf.with_forecasts`.

        Raises
        ------
        DataError
            The data do not fit.
        """
        conf, facts = self._conf, self._facts
        if isinstance(x, (str, os.PathLike)):
            path = os.fspath(x)
            raise DataError(
                f"{name}: the path {path!r}, expected records. Files are read by sd.predict(run, {path!r})."
            )
        x = x.compute() if is_of(x, "dask.dataframe", "DataFrame") else x
        x = _one_record(x, facts, name)
        single = x[0] if type(x) is list and len(x) == 1 and isinstance(x[0], Mapping) else None
        x = _as_table(x, name, self._spelling, self._named, facts.texts if facts else ())
        if is_frame(x):
            x = _with_names(x, self._named, name) if hasattr(x, "iloc") else as_table(x, name)
            if isinstance(x, pa.Table):
                x = x.rename_columns(as_spelled(x.column_names, self._named, name))
            if not x.shape[1] and not len(x):
                return _Rows([], conf, facts, name)
            if self._columns is not None:
                return self._columns.records(x, name, forecasts, single)
            x = _numbers_of(x, name)
        elif _is_pictures(x):
            return _Pictures(x, conf, name)
        elif isinstance(x, (list, tuple)) and isinstance(next(iter(x), None), str):
            wanted = "numbers, or pictures as bytes or of Pillow. sd.predict reads files by their path"
            if facts:
                wanted = f"values by name of column: {listed([*facts.features], 3)}"
            raise DataError(f"{name}: texts. Expected {wanted}.")
        return _Rows(x, conf, facts, name)


def as_named_columns(x: Any, columns: Sequence[str], name: str) -> Any:
    """Return records in a form from which several input layers can read columns by name.

    Raises
    ------
    DataError
        The records have no column names.
    """
    x = x.compute() if is_of(x, "dask.dataframe", "DataFrame") else x
    if hasattr(x, "iloc") and getattr(x, "ndim", 0) == 1:
        return [{str(column): value for column, value in x.items()}]
    if is_frame(x):
        # a stream can be read only once
        return x if hasattr(x, "iloc") else as_table(x, name)
    if isinstance(x, Mapping) or (isinstance(x, (list, tuple)) and (not x or isinstance(x[0], Mapping))):
        return x
    raise DataError(
        f"{name}: values without names. Several input layers read them, so pass objects, dicts or a DataFrame with the "
        f"names of the columns. Columns: {listed([*columns])}."
    )


def are_columns(x: Mapping[str, Any], facts: Mapping[str, TableFacts], name: str) -> bool:
    """Return whether the keys of a dict are columns of a table, not names of input layers.

    Raises
    ------
    DataError
        A key names both a layer and its column, and its numbers can be categories as well as indices of categories.
    """
    if x.keys() != {column for each in facts.values() for column in each.features}:
        return False
    if all(is_frame(values) or getattr(values, "ndim", 0) > 1 for values in x.values()):
        return False
    for key, values in x.items():
        if facts[key].categories and np.ndim(values) == 1 and np.asarray(values).dtype.kind in "iuf":
            raise DataError(
                f"{name}: {key!r} is an input layer and a column. Pass a DataFrame for columns, or arrays of the shape "
                "(n, 1) for records of layers."
            )
    return True


def _one_record(x: Any, facts: TableFacts | None, name: str) -> Any:
    """Convert a single record to a list with one dict; return other data unchanged."""
    if facts is not None and hasattr(x, "iloc") and getattr(x, "ndim", 0) == 1:
        record = {str(column): value for column, value in x.items()}
        return x if {*facts.features}.isdisjoint(as_spelled([*record], facts.features, name)) else [record]
    if not isinstance(x, Mapping):
        return x
    vectors = {*facts.widths}.difference(facts.texts) if facts else set()
    spelled = as_spelled([str(column) for column in x], facts.features, name) if facts else [*x]
    single = [column for column, known in zip(x, spelled, strict=True) if _is_one_value(x[column], known in vectors)]
    # columns that the net does not read may hold anything
    read = [column for column, known in zip(x, spelled, strict=True) if not facts or known in facts.features]
    if single and {*single}.issuperset(read):
        return [x]
    if single:
        other = next(column for column in read if column not in single)
        raise DataError(
            f"{name}: {str(single[0])!r} has one value, {str(other)!r} several. Pass a list of values for each column, "
            "or a list of one dict for one record."
        )
    return x


def _is_one_value(value: Any, is_vector: bool) -> bool:
    """Return whether a value of a dict belongs to one record, not to several."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return True
    return is_vector and np.ndim(next(iter(value), 0.0)) == 0


def _wanted(conf: StoreConf, facts: TableFacts | None) -> set[str]:
    """Return the names of the columns in the job or in the training data."""
    known = (*facts.features, *facts.labels) if facts else ()
    lags = conf.lags.sources if conf.lags else ()
    return {*known, *lags, *conf.label_columns, *conf.target, conf.weight}


def _with_names(x: Any, wanted: Collection[str], name: str) -> Any:
    """Return a pandas frame with its columns renamed to the spelling in ``wanted``."""
    names = names_of(x.columns, name)
    spelled = as_spelled(names, wanted, name)
    return x if spelled == names else x.set_axis(spelled, axis=1)


def _as_table(x: Any, name: str, spelling: Spelling, wanted: Collection[str], texts: Collection[str]) -> Any:
    """Convert a dict of columns, or a list of dicts, to a table; return other data unchanged."""
    if isinstance(x, (list, tuple)) and len(x) and isinstance(x[0], Mapping):
        x = _columns_of_rows(x, name)
    elif not isinstance(x, Mapping):
        return x
    names = [*map(str, x)]
    refuse_twice(names, name)
    by_name = dict(zip(as_spelled(names, wanted, name), x.values(), strict=True))
    columns = as_columns(by_name, name, spelling, lambda row: f"{name}, row {row}", texts)
    try:
        return pa.table(columns)
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{name}: expected columns of equal length: {error}.") from None


def _columns_of_rows(rows: Sequence[Any], name: str) -> dict[str, list[Any]]:
    """Convert a list of records, which are dicts, to columns.

    All records must have the same keys. Otherwise a misspelled key would be taken for a missing value.
    """
    first = rows[0].keys()
    if not first:
        raise DataError(f"{name}, row 0: an object without values. Expected values by column name.")
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise DataError(f"{name}, row {number}: not an object, unlike row 0.")
        if row.keys() != first:
            column = min(row.keys() ^ first, key=str)
            what = "a key that the first object lacks" if column in row else "lacks this key of the first object"
            where = f"{name}, row {number}, {str(column)[:40]!r}"
            raise DataError(f"{where}: {what}. Pass null, or None, for a missing value.")
    return {column: [row[column] for row in rows] for column in first}


# -- arrays --------------------------------------------------------------------------------------------------


class _Rows(MemoryRecords):
    """Records that are the rows of an array."""

    def __init__(self, x: Any, conf: StoreConf, facts: TableFacts | None, name: str) -> None:
        values, shape = as_array(x, name), tuple(conf.shape)
        if values.shape == (0,):  # the shape of the records in an empty list is unknown
            values = np.empty((0, *shape))
        if facts is not None and values.shape[1:] == (len(facts.features),) != (len(facts.names),):
            raise DataError(
                f"{name}: values without names. Pass objects, dicts or a DataFrame with the names of the columns, to "
                f"encode the values as in training. Columns: {listed([*facts.features])}."
            )
        if values.dtype.kind == "O":
            for (row, *column), value in np.ndenumerate(values):
                if value is None:
                    place = f", column {', '.join(map(str, column))}" if column else ""
                    raise DataError(f"{name}, row {row}{place}: no value (null), expected a number.")
        check_numbers(values.dtype, name)
        if values.ndim == 1 and shape != (1,):
            raise DataError(
                f"{name}: shape {values.shape}, expected (n, {', '.join(map(str, shape))}).{_one(values, shape)}"
            )
        try:
            check_shape(name, values.shape[1:] or (1,), conf)
        except DataError as error:
            raise DataError(f"{error}{_one(values, shape)}") from None
        self.n, self._values, self._name = len(values), values, name
        self._field = value_name(values.dtype)
        self.warning = _range_warning(values, conf, name)
        self._dtype = np.dtype(np.uint8) if self._field == "pixel" else _floats(conf)

    def read(self, first: int, stop: int) -> Arrays:
        return {self._field: as_stored(self._values[first:stop], self._dtype, f"{self._name}, row", first)}


def _floats(conf: StoreConf) -> np.dtype[Any]:
    """Return the dtype of numbers before normalisation."""
    return np.dtype(np.float64 if conf.standardise else np.float32)


def _range_warning(values: Array, conf: StoreConf, name: str) -> str:
    """Return a warning if pictures have values from 0 to 1 but the net was trained on bytes, else ``""``."""
    scale = max(map(abs, (*conf.mean_value, *conf.std_value)), default=0)
    if values.dtype.kind != "f" or len(conf.shape) < IMAGE_AXES or scale < MIN_BYTE_SCALE or not values.size:
        return ""
    if values.min() < 0 or not 0 < values.max() <= 1:
        return ""
    return (
        f"{name}: all values of the pictures are from 0 to 1, but the net was trained on pixels from 0 to 255 "
        f"(mean_value or std_value {scale:g}). Pass the pixels before scaling, such as 255 * {name}."
    )


def _one(values: Array, shape: tuple[int, ...]) -> str:
    """Return a hint for an error message if an array looks like a single record, else an empty text."""
    return " This is the shape of one record: pass x[None]." if values.shape == shape else ""


def _numbers_of(x: Any, name: str) -> Array:
    """Convert a frame of numbers to an array, for a net that was trained without named columns."""
    table = as_table(x, name)
    for column in table.schema:
        if column_kind(column.type) not in ("number", "boolean"):
            raise DataError(
                f"{name}, column {column.name!r}: values of type {column.type}, expected numbers: this net was not "
                "trained on named columns."
            )
    columns = [as_floats(whole(column)) for column in table.columns]
    return np.stack(columns, axis=1) if columns else np.empty((len(table), 0))


# -- frames --------------------------------------------------------------------------------------------------


def _spec(conf: StoreConf, facts: TableFacts, outputs: bool) -> TableSpec:
    """Return how to read the columns: by the job's keys, or as a converted table was originally read."""
    if conf.is_table:
        labels, target, missing = tuple(conf.label_columns), tuple(conf.target), conf.missing
    else:
        labels, target, missing = tuple(facts.labels), (), "mean" if facts.means else "error"
    known = {**facts.categories, **{name: names for name, names in facts.labels.items() if names}}
    labels, target = (labels, target) if outputs else ((), ())
    weight = conf.weight if outputs else ""
    return TableSpec(
        facts.features, labels, target, missing, known, facts.encoding, weight, facts.texts,
        spelling=Spelling(dates=facts.dates), unlabelled=conf.unlabelled, blank_texts=not outputs, unknown=conf.unknown,
        fill_absent=bool(conf.user_conf.get("fill_absent")),
    )  # fmt: skip


def describe_columns(conf: StoreConf, facts: TableFacts) -> dict[str, Any]:
    """Describe for JSON which values columns accept, and how missing and unknown values are treated.

    Returns
    -------
    dict
        ``features`` describes each column: its ``type`` (number, boolean, category, text, date or vector), up to
        `MAX_SHOWN` ``categories`` and their total ``n_categories``, ``numbers`` if numbers are written in a special
        form, the ``parts`` of a date with its form, and the ``length`` of a vector. ``missing`` and ``unknown`` are the
        settings of the job or the caller. ``na_values`` are the words for missing values.
    """
    spec, spelling = _spec(conf, facts, False), conf.spelling.over(facts.spelling).to_dict()
    features: dict[str, dict[str, Any]] = {}
    for name in facts.features:
        kind = "boolean" if name in (facts.booleans or ()) else facts.kind_of(name)
        features[name] = {"type": kind}
        if name in facts.texts:
            features[name] = {"type": "text"}
        elif name in facts.dates:
            features[name] = {"type": "date", **facts.dates[name].to_dict()}
        elif name in facts.categories:
            known = facts.categories[name]
            features[name] = {"type": "category", "categories": known[:MAX_SHOWN], "n_categories": len(known)}
        elif name in facts.widths:
            features[name]["length"] = facts.widths[name]
        if form := spelling.get("numbers", {}).get(name):
            features[name]["numbers"] = form
    # `skip` applies only in training and in tests; in predictions, a missing value is an error
    missing = "error" if spec.missing == "skip" else spec.missing
    words = {"na_values": spelling["na_values"]} if "na_values" in spelling else {}
    return {"features": features, "missing": missing, "unknown": spec.unknown, **words}


def _spelling(conf: StoreConf, facts: TableFacts) -> Spelling:
    """Return how values are spelled in the columns.

    Text in a column of numbers is parsed as in a CSV file.
    """
    labels = conf.label_columns if conf.is_table else facts.labels
    numbers = [*filter(facts.is_number, facts.features), *(name for name in labels if not facts.classes_of(name))]
    if conf.is_table:
        numbers += [*conf.target, *([conf.weight] if conf.weight else []), *(conf.lags.columns if conf.lags else ())]
    others = {*facts.categories, *facts.texts, *facts.dates, *(name for name in labels if facts.classes_of(name))}
    plain = [name for name in numbers if name not in others]
    return conf.spelling.over(facts.spelling).with_plain(plain, facts.booleans or ())


class _Columns:
    """Reads and encodes named columns."""

    def __init__(
        self,
        conf: StoreConf,
        facts: TableFacts,
        spelling: Spelling,
        outputs: bool,
        skips: bool,
        scaling: Scaling | None,
    ) -> None:
        self.conf, self.facts, self.spelling, self.scaling = conf, facts, spelling, scaling
        self.spec = spec = _spec(conf, facts, outputs)
        self.wanted = {*facts.features, *spec.outputs}
        self.required = spec.required(facts.features)
        self.skips = bool(self.required) and skips
        fill = "error" if spec.missing == "skip" else spec.missing
        self.encoder = TableEncoder(replace(spec, missing=fill, unlabelled="error"), facts)
        if conf.standardise:
            self.encoder.schema["data"] = Field(np.dtype(np.float64), self.encoder.schema["data"].shape)
        self.rows = None if outputs or self.skips or conf.lags else RowEncoder(self.encoder, facts)

    def records(self, x: Any, name: str, forecasts: Sequence[Any] | None, single: Mapping[str, Any] | None) -> _Frame:
        """Return the records of a frame; see `MemoryReading.records`.

        If the caller passed a single record as a mapping, ``single`` is that mapping.
        """
        x, absent = self._with_absent(x, name)
        x, first, n_later, n_before, gaps = self._with_lags(x, name, forecasts)
        frame = _Frame(x, first, self, name, n_before)
        frame.n_later = n_later
        frame.n_left_out = len(x) - first - frame.n
        frame.warning = " ".join(filter(None, [absent, gaps, frame.percent_warning()]))
        if single is not None and self.rows and not frame.warning and self.rows.can_learn(single):
            frame.single = single
        return frame

    def _with_absent(self, x: Any, name: str) -> tuple[Any, str]:
        """Add missing feature columns, without values, if the caller asks for this; also return a warning."""
        columns, lags = x.column_names if isinstance(x, pa.Table) else [*map(str, x.columns)], self.conf.lags
        added = lags.names if lags and {*columns}.isdisjoint(lags.names) else ()
        features = [each for each in self.facts.features if each not in added]
        absent = self.spec.absent(name, columns, self.facts, features) if features else []
        if not absent:
            return x, ""
        if isinstance(x, pa.Table):
            for column in absent:
                x = x.append_column(column, pa.nulls(len(x)))
        else:
            x = x.assign(**dict.fromkeys(absent))
        return x, f"{name}: {absent_warning(columns, absent, features)}"

    def _with_lags(self, x: Any, name: str, forecasts: Sequence[Any] | None) -> tuple[Any, int, int, int, str]:
        """Add the lags of a time series to a frame that lacks them.

        Returns
        -------
        tuple
            The frame; the index of the first row with all lags; the number of further records to forecast; the number
            of rows that were cut off before the frame; a description of gaps in the times of the rows.
        """
        conf, facts, spec, spelling = self.conf, self.facts, self.spec, self.spelling
        columns, lags = x.column_names if isinstance(x, pa.Table) else [*map(str, x.columns)], conf.lags
        if lags is None or not {*columns}.isdisjoint(lags.names):
            return x, 0, 0, 0, ""
        refuse_absent(name, columns, lags.columns)
        wanted = {*facts.features, *lags.sources, *conf.label_columns, *conf.target, conf.weight}
        indices = [index for index, column in enumerate(columns) if column in wanted]
        where = lambda row: f"{name}, row {row}"  # noqa: E731
        table = as_table(
            x.select(indices) if isinstance(x, pa.Table) else x.iloc[:, indices], name, spelling, where, spec.texts
        )
        table = spelling.read(table, spec.categories, where, spec.texts)
        # check only the first step of a forecast, because later steps read the same records
        gaps = "" if forecasts else lags.check_order(name, table)
        if spec.missing == "error":
            lags.refuse_gaps(table, {*lags.columns}.difference(spec.categories), where, spec.true_columns)
        n, n_later = len(table), 0
        if forecasts is not None:
            table, n_later = lags.with_forecasts(name, table, forecasts)
        predicted = {*lags.columns}.isdisjoint((*spec.label, *spec.target))
        added = lags.add(name, table, predicted=predicted)
        return added, min(lags.n, len(added)), n_later, n - n_later - len(added), gaps


class _Frame(MemoryRecords):
    """Records that are the rows of a frame from ``first`` on, with encoded columns.

    ``n_before`` is the number of the caller's rows before the frame. Row numbers in errors count them, too.

    Attributes
    ----------
    single : mapping of str to value, or None
        The only record, for `RowEncoder.learn`.
    """

    single: Mapping[str, Any] | None = None

    def __init__(self, x: Any, first: int, how: _Columns, name: str, n_before: int) -> None:
        self._frame, self._how, self._name, self._n_before = x, how, name, n_before
        self._rows = np.arange(first, len(x)) if first else None
        columns, features = x.column_names if isinstance(x, pa.Table) else list(map(str, x.columns)), how.facts.features
        how.spec.check_means(name, how.facts)
        self._indices = [index for index, column in enumerate(columns) if column in how.wanted]
        how.spec.check(name, dict.fromkeys(columns, "number"), features)
        self.n = len(x) - first
        if how.skips:
            present = self._present()
            self._rows = present if self._rows is None else self._rows[present]
            self.n = len(present)

    def percent_warning(self) -> str:
        """Return a warning if a percent column has fractions, else ""."""
        columns = self._frame.column_names if isinstance(self._frame, pa.Table) else [*map(str, self._frame.columns)]
        indices = [columns.index(name) for name in percent_columns(self._how.facts)]
        if not indices or not self.n:
            return ""
        written, table = self._rows_of(0, self.n, indices)
        kinds = {each.name: column_kind(each.type) for each in written.schema}
        counts = count_percents(table, self._how.facts, self._how.spelling, kinds, self._how.scaling)
        return " ".join(f"{self._name}, {text}" for text in percent_warnings(counts))

    def _rows_of(self, first: int, stop: int, indices: Sequence[int]) -> tuple[pa.Table, pa.Table]:
        """Return columns of the rows from ``first`` to ``stop`` in two tables: as written, and after parsing."""
        if not isinstance(self._frame, pa.Table):
            rows = slice(first, stop) if self._rows is None else self._rows[first:stop]
            part = self._frame.iloc[rows, indices]
        elif self._rows is None:
            part = self._frame.select(indices).slice(first, stop - first)
        else:
            part = self._frame.select(indices).take(pa.array(self._rows[first:stop]))
        row = lambda row: f"{self._name}, row {self._row(first + row)}"  # noqa: E731
        table = as_table(part, self._name, self._how.spelling, row, self._how.spec.texts)
        return table, self._how.spelling.read(table, self._how.spec.categories, row, self._how.spec.texts)

    def _slice(self, first: int, stop: int) -> pa.Table:
        """Return the rows from ``first`` to ``stop`` of the columns to read."""
        table = self._rows_of(first, stop, self._indices)[1]
        kinds = {name: _kind_of(table.column(name)) for name in table.column_names}
        self._how.spec.check(self._name, kinds, self._how.facts.features, is_trained=True)
        self._how.facts.check_booleans(self._name, kinds)
        return table

    def _present(self) -> npt.NDArray[np.int64]:
        """Return the indices of the rows without missing values."""
        rows = [
            first + np.flatnonzero(~missing_rows(part, self._how.required))
            for first in range(0, self.n, CHUNK_ROWS)
            for part in [self._slice(first, min(first + CHUNK_ROWS, self.n))]
        ]
        return np.concatenate([np.empty(0, np.int64), *rows])

    def read(self, first: int, stop: int) -> Arrays:
        table = self._slice(first, stop)
        # a missing category is encoded as an unknown category
        zeros = self._how.facts.categories if self._how.spec.unknown == "ignore" else ()
        for column in () if self._how.skips else (name for name in self._how.required if name not in zeros):
            missing = missing_rows(table, [column])
            if missing.any():
                where = f"{self._name}, row {self._row(first + int(missing.argmax()))}, column {column!r}"
                remedy = (ZEROS if column in self._how.facts.categories else FILLED)._replace(
                    text="Leave the record out."
                )
                raise DataError(f"{where}: no value. The job skips such records. {remedy.text}", remedy=remedy)
        arrays = self._how.encoder.encode(table, lambda row: f"{self._name}, row {self._row(first + row)}")
        if self.counts is not None or self.single is not None:
            counts = self._how.encoder.count_filled(table, arrays["data"])
            if self.counts is not None:
                self.counts.add(counts)
            if self._how.rows and self.single is not None:
                self._how.rows.learn(self.single, arrays, {*counts.filled, *counts.unknown})
        return arrays

    def _row(self, index: int) -> int:
        return self._n_before + (index if self._rows is None else int(self._rows[index]))


def _kind_of(column: pa.ChunkedArray) -> str:
    """Return the kind of a column. A column without values counts as numbers."""
    kind = column_kind(column.type)
    return "number" if kind in ("empty", "string") and column.null_count == len(column) else kind


# -- pictures ------------------------------------------------------------------------------------------------


def _is_pictures(x: Any) -> bool:
    if not isinstance(x, (list, tuple)) and getattr(getattr(x, "dtype", None), "kind", "") != "O":
        return False
    first = next(iter(x), None)
    return isinstance(first, (bytes, bytearray, memoryview)) or hasattr(first, "convert")


class _Pictures(MemoryRecords):
    """Records that are pictures: encoded bytes, e.g. PNG, or Pillow images."""

    def __init__(self, pictures: Sequence[Any], conf: StoreConf, name: str) -> None:
        channels, *size = conf.shape if len(conf.shape) == 3 else [1, *conf.shape]
        if len(size) != 2 or channels not in (1, 3):
            raise DataError(f"{name}: pictures, but records are of shape {tuple(conf.shape)}. Expected arrays.")
        self.n, self._pictures, self._name = len(pictures), pictures, name
        self._resize, self._channels = (conf.resize, conf.channels) if conf.resize else (size, channels)
        self._is_last = conf.layout == "NHWC"

    def read(self, first: int, stop: int) -> Arrays:
        pixels = np.stack([self._decoded(row) for row in range(first, stop)])
        return {"pixel": np.ascontiguousarray(np.moveaxis(pixels, 1, -1)) if self._is_last else pixels}

    def _decoded(self, row: int) -> npt.NDArray[np.uint8]:
        picture, where = self._pictures[row], f"{self._name}, picture {row}"
        if isinstance(picture, (bytes, bytearray, memoryview)):
            return decode_image(bytes(picture), where, self._resize, self._channels)
        return image_pixels(picture, where, self._resize, self._channels)
