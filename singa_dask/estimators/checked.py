"""Checks of what estimators are given: values in memory by scikit-learn, collections of Dask by their types."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute, is_dask_collection
from dask.delayed import delayed
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

__all__ = ["checked_features", "checked_records", "classes_of", "labels_of"]

FLOATS = (np.float64, np.float32)


def checked_records(
    estimator: BaseEstimator, x: Any, y: Any, several_axes: bool, reset: bool = True, **given: Any
) -> tuple[Any, Any]:
    """Return features and targets to fit to: arrays of NumPy, or of Dask with the same chunks of records.

    Parameters
    ----------
    estimator : BaseEstimator
        Gets ``n_features_in_`` and ``feature_names_in_``.
    x, y
        Arrays or frames.
    several_axes : bool
        Whether a record may have several axes, and its values may be uint8.
    reset : bool
        Whether the names and the number of features may be others than in the fit before.
    **given
        Options of `sklearn.utils.validation.validate_data`.

    Raises
    ------
    ValueError
    """
    if not is_dask_collection(x):
        y = y.compute() if is_dask_collection(y) else y
        kinds = (*FLOATS, np.uint8) if several_axes else FLOATS
        checked: tuple[Any, Any] = validate_data(
            estimator, x, y, dtype=kinds, allow_nd=several_axes, reset=reset, **given
        )
        return checked
    _checked_meta(estimator, x, several_axes, reset=reset)
    if not is_dask_collection(y):
        y = da.from_array(np.asarray(y), chunks=-1)  # type: ignore[no-untyped-call]
    features, targets = _arrays_of(x, y)
    features = features.rechunk(dict.fromkeys(range(1, features.ndim), -1))
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.shape[:1] != features.shape[:1]:
        raise ValueError(f"X has {features.shape[0]} records, but y has {targets.shape[0]}.")
    _check_finite(X=features, y=targets)
    return features, targets.rechunk({0: features.chunks[0], **dict.fromkeys(range(1, targets.ndim), -1)})


def checked_features(estimator: BaseEstimator, x: Any, several_axes: bool) -> Any:
    """Return features to predict from; collections of Dask stay what they are.

    Raises
    ------
    ValueError
        They differ from those that the estimator was fitted to.
    """
    if is_dask_collection(x):
        return _checked_meta(estimator, x, several_axes, reset=False)
    kinds = (*FLOATS, np.uint8) if several_axes else FLOATS
    return validate_data(estimator, x, dtype=kinds, allow_nd=several_axes, reset=False)


def _checked_meta(estimator: BaseEstimator, x: Any, several_axes: bool, reset: bool) -> Any:
    """Check names, number and types of the features of a collection; return it."""
    meta = np.empty((0, *x.shape[1:]), x.dtype) if hasattr(x, "chunks") else x._meta
    options = {"dtype": "numeric", "allow_nd": several_axes, "ensure_min_samples": 0, "reset": reset}
    validate_data(estimator, meta, **options)
    return x


def _arrays_of(*collections: Any) -> list[Any]:
    """Return collections as arrays of Dask of known shapes; frames are computed once for the lengths of all."""
    frames = [each for each in collections if hasattr(each, "to_dask_array")]
    lengths = iter(compute(*(each.map_partitions(len) for each in frames)))  # type: ignore[no-untyped-call]
    found = []
    for each in collections:
        if hasattr(each, "to_dask_array"):
            each = each.to_dask_array(lengths=tuple(next(lengths)))
        elif np.isnan(each.shape[0]):
            each.compute_chunk_sizes()
        found.append(each)
    return found


def _check_finite(**given: Any) -> None:
    """Check that arrays of Dask have neither NaN nor infinity, in one pass over all of them."""
    floats = {name: da.isfinite(values).all() for name, values in given.items() if values.dtype.kind == "f"}
    for name, is_finite in zip(floats, compute(*floats.values()), strict=True):  # type: ignore[no-untyped-call]
        if not is_finite:
            raise ValueError(
                f"Input {name} contains NaN or infinity. Expected finite numbers: leave out or fill in others."
            )


def classes_of(y: Any) -> Any:
    """Return the classes among labels, sorted.

    Raises
    ------
    ValueError
        They are no classes, but numbers of a continuous scale.
    """
    if is_dask_collection(y):
        parts = [delayed(np.unique)(part) for part in y.to_delayed().reshape(-1)]
        y = np.concatenate(delayed(list)(parts).compute())
    check_classification_targets(y)
    return np.unique(y)


def labels_of(y: Any, classes: Any) -> Any:
    """Return the indices of the classes of labels, (N,) int32."""
    if is_dask_collection(y):
        return y.map_blocks(labels_of, classes, dtype=np.int32)
    return np.searchsorted(classes, y).astype(np.int32)
