"""predict, extract and test: trained nets on arrays, frames and the collections of Dask."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.base import compute
from dask.delayed import delayed

from singa_dask.errors import DataError
from singa_dask.jobs.model import Model, load_model
from singa_dask.jobs.run import Run
from singa_dask.runtime.inference.metrics import mean_metrics

__all__ = ["extract", "predict", "test"]

Trained = Model | Run | str | os.PathLike[str]


def predict(model: Trained, data: Any, *, layer: str | None = None, proba: bool = False) -> Any:
    """Predict the classes of records, or values; see `Model.predict`.

    Parameters
    ----------
    model : Model, Run, str or path
        A model; or a run, of which the newest checkpoint is loaded.
    data : ndarray, Table, DataFrame, sequence of pictures, dask.array or dask.dataframe
    layer : str, optional
        See `Model.predict`.
    proba : bool
        Return the probability of each class.

    Returns
    -------
    ndarray, Series, DataFrame, dask.array or dask.dataframe
        For data of pandas or Dask the same kind: a Series, or a DataFrame if a record has several values, with the same
        index and divisions; an array with the same chunks. Collections of Dask are not computed before they are asked
        for, partition by partition, and every worker reads the checkpoint from its URL.

    Raises
    ------
    DataError
        A record does not fit; names its row, and its column.
    """
    found = _model(model)
    name = layer or found.output
    if proba:
        return _map(functools.partial(found.predict_proba, layer=name), data, found.class_names_of(name))
    return _map(functools.partial(found.predict, layer=name), data, found.targets)


def extract(model: Trained, data: Any, layer: str) -> Any:
    """Return what a layer makes of records, as `predict` does; see `Model.extract`."""
    return _map(functools.partial(_model(model).extract, layer=layer), data)


def test(model: Trained, data: Any, y: Any = None) -> dict[str, float]:
    """Measure a net on records, each once; see `Model.test`.

    Collections of Dask are computed, partition by partition; ``y`` needs the same partitions as ``data``. A batch never
    spans two partitions.

    Raises
    ------
    DataError
        See `Model.test`; or the partitions of ``y`` are others.
    """
    found = _model(model)
    if not _is_dask(data):
        return found.test(data, y)
    parts = _parts(data)
    labels = [None] * len(parts) if y is None else _parts(y) if _is_dask(y) else []
    if len(labels) != len(parts):
        raise DataError(f"y: {len(labels) or 'no'} partitions of Dask, expected {len(parts)}, as the data has.")
    tasks = [delayed(found.measure, pure=False)(*part) for part in zip(parts, labels, strict=True)]
    measured = compute(*tasks)  # type: ignore[no-untyped-call]
    return mean_metrics(itertools.chain.from_iterable(measured))


def _model(model: Trained) -> Model:
    return model if isinstance(model, Model) else load_model(model)


# -- kinds of data ---------------------------------------------------------------------------------------------


def _is_of(data: Any, package: str, *names: str) -> bool:
    """Return whether data is of a class of a package, which is not imported for it."""
    module = sys.modules.get(package)
    return module is not None and isinstance(data, tuple(getattr(module, name) for name in names))


def _is_dask(data: Any) -> bool:
    return _is_of(data, "dask.array", "Array") or _is_of(data, "dask.dataframe", "DataFrame", "Series")


def _map(function: Callable[[Any], npt.NDArray[Any]], data: Any, names: tuple[str, ...] = ()) -> Any:
    """Return what a function of some records makes of all data."""
    if isinstance(data, (str, os.PathLike)):
        raise DataError(
            f"{os.fspath(data)}: a path, expected records in memory. The commands predict and extract read files."
        )
    if _is_of(data, "dask.array", "Array"):
        return _map_blocks(function, data)
    if _is_of(data, "dask.dataframe", "DataFrame"):
        return data.map_partitions(
            functools.partial(_on_partition, function, names), meta=_on_frame(function, names, data._meta)
        )
    return _on_frame(function, names, data) if _is_of(data, "pandas", "DataFrame") else function(data)


def _map_blocks(function: Callable[[Any], npt.NDArray[Any]], data: Any) -> Any:
    whole = data.rechunk(dict.fromkeys(range(1, data.ndim), -1))
    one = function(np.empty((0, *whole.shape[1:]), whole.dtype))
    return whole.map_blocks(
        functools.partial(_on_block, function),
        chunks=(whole.chunks[0], *((n,) for n in one.shape[1:])),
        drop_axis=list(range(1, whole.ndim)),
        new_axis=list(range(1, one.ndim)) or None,
        dtype=one.dtype,
        meta=np.empty((0,) * one.ndim, one.dtype),
    )


def _on_block(function: Callable[[Any], npt.NDArray[Any]], block: Any, block_info: Any = None) -> npt.NDArray[Any]:
    try:
        return function(block)
    except DataError as error:
        raise DataError(f"chunk {block_info[0]['chunk-location'][0]} of rows: {error}") from error


def _on_partition(
    function: Callable[[Any], npt.NDArray[Any]], names: tuple[str, ...], frame: Any, partition_info: Any = None
) -> Any:
    try:
        return _on_frame(function, names, frame)
    except DataError as error:
        raise DataError(f"partition {partition_info['number']}: {error}") from error


def _on_frame(function: Callable[[Any], npt.NDArray[Any]], names: tuple[str, ...], frame: Any) -> Any:
    """Return what a function makes of a frame of pandas, with its index."""
    pandas = sys.modules["pandas"]
    values = function(frame)
    if values.ndim == 1:
        return pandas.Series(values, index=frame.index, name=names[0] if len(names) == 1 else "prediction")
    values = values.reshape(len(values), int(np.prod(values.shape[1:])))
    columns = names if len(names) == values.shape[1] else [str(i) for i in range(values.shape[1])]
    return pandas.DataFrame(values, index=frame.index, columns=list(columns))


def _parts(data: Any) -> list[Any]:
    """Return the partitions of a collection, each as a delayed value."""
    if _is_of(data, "dask.array", "Array"):
        return list(data.rechunk(dict.fromkeys(range(1, data.ndim), -1)).to_delayed().ravel())
    return list(data.to_delayed())
