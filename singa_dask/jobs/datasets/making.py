"""Create datasets from arrays and frames in memory, or from Dask collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import is_dask_collection
from dask.delayed import delayed

from singa_dask.comm.remote_import import Guarded
from singa_dask.data.codecs.class_types import BOOLEAN, BOOLEANS
from singa_dask.data.codecs.equal_names import distinct_names
from singa_dask.data.codecs.plain_arrays import TEXTS, column_values, texts_of
from singa_dask.data.codecs.record_values import is_rounded
from singa_dask.data.tables.facts import MAX_CATEGORIES
from singa_dask.data.tables.frames import as_table, is_frame, names_of
from singa_dask.errors import DataError
from singa_dask.jobs.cluster import compute_on
from singa_dask.jobs.datasets.array_records import ArrayWriter, feature_field, output_field
from singa_dask.jobs.datasets.frame_records import FrameWriter, column_name, drop_columns, output_names
from singa_dask.jobs.datasets.lazy_parts import map_parts, parts_of, rows_together
from singa_dask.jobs.datasets.records import Dataset, check_count, check_weight_type, place_of
from singa_dask.jobs.torch_objects import advice_on, without_tensors

if TYPE_CHECKING:
    from distributed import Client


TAKEN = (
    "an array of NumPy, Dask or xarray, a tensor of PyTorch, a frame of pandas or Dask, a table of pyarrow, a pair "
    "(X, y) of one of them and labels or targets, or (X, y, weights)"
)


def as_datasets(data: Any, client: Client | str | None = None) -> dict[str, Dataset]:
    """Return the datasets for a mapping of values by name.

    A value that is not a mapping becomes a single dataset, named ``train``. See `as_dataset`.
    """
    if data is None:
        return {}
    # exclude an xarray Dataset, which is a mapping, too
    named = data if isinstance(data, Mapping) and not hasattr(data, "data_vars") else {"train": data}
    return {
        str(name): value if isinstance(value, Dataset) else as_dataset(str(name), value, client)
        for name, value in named.items()
    }


def as_dataset(name: str, value: Any, client: Client | str | None = None) -> Dataset:
    """Return a dataset with the records of a value.

    Dask collections are not computed, except for class names if labels are strings.

    Parameters
    ----------
    name : str
        Name of the dataset; jobs read it as ``path: dask://NAME``.
    value
        X, (X, y), or (X, y, weights). X is an array (records, ...) of NumPy, Dask or xarray, or a PyTorch tensor; uint8
        values are pixels, other values become 32-bit floats. X can also be a pandas or Dask frame, or a pyarrow Table;
        the job then names the columns. y has labels (integers or strings) or targets (floats). Weights are non-negative
        numbers.
    client : distributed.Client or str, optional
        Cluster to compute on; see `compute_on`.

    Raises
    ------
    DataError
        The value cannot be converted to records. The message names the dataset.
    """
    where = f"dataset {name!r}"
    value = without_tensors(value)
    if not name or "/" in name:
        raise DataError(f"{where}: expected a name without slashes.")
    if isinstance(value, tuple) and len(value) not in (2, 3):
        raise DataError(f"{where}: the data is a tuple of {len(value)} items, expected {TAKEN}.")
    x, y, weights, *_ = (*map(_data_of, value), None) if isinstance(value, tuple) else (_data_of(value), None, None)
    if y is None and weights is not None:
        raise DataError(f"{where}: there are weights but no y, expected {TAKEN}.")
    if is_frame(x):
        return _of_frame(name, x, y, weights)
    y, weights = (each if each is None or _is_array(each) else _array_of_column(each) for each in (y, weights))
    for each in (x, *(each for each in (y, weights) if each is not None)):
        if not _is_array(each):
            kind = f"{type(each).__module__}.{type(each).__name__}".removeprefix("builtins.")
            hint = " Pass one of its variables." if hasattr(each, "data_vars") else ""
            raise DataError(f"{where}: the data has an object of type {kind}, expected {TAKEN}.{hint}{advice_on(each)}")
    return _of_arrays(name, x, y, weights, client)


def _data_of(value: Any) -> Any:
    """Return the array in an xarray DataArray; return other values unchanged."""
    return value.data if hasattr(value, "dims") and hasattr(value, "coords") and hasattr(value, "data") else value


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (is_dask_collection(value) and hasattr(value, "chunks"))


def _array_of_column(y: Any) -> Any:
    """Convert a column of pandas, Dask or pyarrow to an array; return other values unchanged."""
    if is_dask_collection(y) and hasattr(y, "to_dask_array"):
        # Dask would convert pandas' extension types to objects, with a warning
        plain = y if isinstance(y.dtype, np.dtype) else y.astype(getattr(y.dtype, "numpy_dtype", object))
        return plain.to_dask_array()
    return column_values(y)


# -- arrays --------------------------------------------------------------------------------------------------------


def _of_arrays(name: str, x: Any, y: Any, weights: Any, client: Client | str | None) -> Dataset:
    where = f"dataset {name!r}"
    feature = feature_field(where, x.dtype, x.shape)
    output = None if y is None else output_field(where, y.dtype, y.shape)
    if weights is not None:
        check_weight_type(where, weights.dtype, weights.shape)
    for word, values in (("y", y), ("weights", weights)):
        if values is not None:
            check_count(where, "X", x.shape[0], word, values.shape[0])
    if x.shape[0] == 0:
        raise DataError(f"{where}: there are no records.")
    parts, outputs, of_weights = _partitions(where, x, y=y, weights=weights)
    classes: Sequence[str] = ()
    class_type = BOOLEAN if y is not None and y.dtype.kind == "b" else ""
    if y is not None and y.dtype.kind == "b":
        classes = BOOLEANS
    elif y is not None and y.dtype.kind in TEXTS:
        classes = _classes(name, outputs, client)
    parts = _tuples(parts, outputs, of_weights)
    # the data has targets but no labels
    defaults = {"has_label": False} if output and output[0] == "target" else {}
    rounds = feature[0] == "data" and is_rounded(x.dtype)
    writer = ArrayWriter(name, len(parts), feature, output, tuple(classes), weights is not None, rounds, class_type)
    return Dataset(name, tuple(parts), writer, ".arrow", defaults, feature[1].shape, has_weights=weights is not None)


def _tuples(parts: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
    """Combine partitions of several collections: ``[x0, x1], [y0, y1]`` becomes ``[(x0, y0), (x1, y1)]``.

    Empty lists are ignored.
    """
    columns = [each for each in others if each]
    if not columns:
        return list(parts)
    if is_dask_collection(parts[0]):
        return map_parts(_tuple, parts, *columns)
    return list(zip(parts, *columns, strict=True))


def _tuple(*values: Any) -> tuple[Any, ...]:
    return values


def _partitions(where: str, x: Any, **others: Any) -> list[list[Any]]:
    """Return the partitions of X, and the partitions of ``others`` with the same records.

    Partitions consist of whole records. The result for None is an empty list.
    """
    if not any(map(is_dask_collection, (x, *others.values()))):
        return [[x], *([] if each is None else [each] for each in others.values())]
    x = rows_together(x)
    return [parts_of(x), *(_parts_like(where, x, name, each) for name, each in others.items())]


def _parts_like(where: str, x: Any, name: str, y: Any) -> list[Any]:
    """Return the partitions of y, with the same records as the partitions of X."""
    if y is None:
        return []
    y = rows_together(y)
    if any(map(np.isnan, (*x.chunks[0], *y.chunks[0]))):
        if len(x.chunks[0]) != len(y.chunks[0]):
            verb = "have" if name == "weights" else "has"
            message = f"X has {len(x.chunks[0])} chunks of records, but {name} {verb} {len(y.chunks[0])}"
            raise DataError(f"{where}: {message}, of unknown lengths. Call compute_chunk_sizes() of both first.")
    elif x.chunks[0] != y.chunks[0]:
        y = y.rechunk({0: x.chunks[0]})
    return parts_of(y)


def _classes(name: str, outputs: Sequence[Any], client: Client | str | None) -> list[str]:
    """Return the sorted class names in all partitions."""
    places = [place_of(name, i, len(outputs)) for i in range(len(outputs))]
    if is_dask_collection(outputs[0]):
        names_of = delayed(Guarded(_names))
        texts: Sequence[set[str]] = compute_on(client, *map(names_of, outputs, places))
    else:
        texts = [_names(outputs[0], places[0])]
    names = sorted(distinct_names(set[str]().union(*texts)))
    if len(names) > MAX_CATEGORIES:
        raise DataError(f"dataset {name!r}, y: there are {len(names)} different texts, too many for class names.")
    return names


def _names(values: Any, where: str) -> set[str]:
    return set(texts_of(np.asarray(values), f"{where}, y, record"))


# -- frames --------------------------------------------------------------------------------------------------------


def _of_frame(name: str, frame: Any, y: Any, weights: Any) -> Dataset:
    where, lazy = f"dataset {name!r}", is_dask_collection(frame)
    if not lazy and not hasattr(frame, "iloc"):
        frame = as_table(frame, where)
    columns = names_of(frame.columns, where) if hasattr(frame, "iloc") else frame.column_names
    parts = parts_of(frame) if lazy else [frame]
    uses: Mapping[str, str] = {}
    weight = ""
    if y is not None:
        others = [_outputs(where, frame, "y", y, len(parts))]
        uses = output_names(y, where)
        if weights is not None:
            if getattr(weights, "ndim", 1) != 1:
                raise DataError(
                    f"{where}, weights: the shape is {tuple(weights.shape)}, expected one weight for each record."
                )
            weight = column_name(weights, "weight")
            others.append(_outputs(where, frame, "weights", weights, len(parts)))
        parts = _tuples(parts, *others)
    added = [*uses, *([weight] if weight else [])]
    twice = next((each for each in added if [*columns, *added].count(each) > 1), None)
    if twice is not None:
        what = "the weights" if twice == weight else "y"
        whose = "the frame has" if twice in columns else "y has"
        raise DataError(
            f"{where}: {whose} a column {twice!r}, which is also the name of {what}. Drop it from the frame, or pass "
            "only the frame, and name the column in store_conf: label, target, or weight."
        )
    if not lazy and not len(frame):
        raise DataError(f"{where}: there are no records.")
    defaults = {use: [each for each in uses if uses[each] == use] for use in sorted(set(uses.values()))}
    more: dict[str, Any] = {"weight": weight} if weight else {}
    writer = FrameWriter(name, len(parts), tuple(columns), tuple(uses), weight)
    return Dataset(
        name,
        tuple(parts),
        writer,
        ".parquet",
        {"backend": "table", **defaults, **more},
        columns=tuple(columns),
        drop=lambda names: _of_frame(name, drop_columns(frame, names), y, weights),
        meta=_without_records(frame),
        has_weights=bool(weight),
    )


def _without_records(frame: Any) -> Any:
    if is_dask_collection(frame):
        return frame._meta
    return frame.iloc[:0] if hasattr(frame, "iloc") else frame.slice(0, 0)


def _outputs(where: str, frame: Any, name: str, y: Any, n_parts: int) -> list[Any]:
    """Return the partitions of y or weights."""
    if is_dask_collection(frame) != is_dask_collection(y):
        message = f"only one of frame and {name} is from Dask, expected both, with the same partitions, or none."
        raise DataError(f"{where}: {message}")
    if not is_dask_collection(y):
        if not hasattr(y, "__len__") or isinstance(y, (str, list)):
            raise DataError(f"{where}, {name}: an object of type {type(y).__name__}, expected a column or an array.")
        check_count(where, "the frame", len(frame), name, len(y))
        return [y]
    parts = parts_of(y)
    check_count(where, "the frame", n_parts, name, len(parts), "partitions")
    return parts
