"""Check the features, targets and weights that are passed to estimators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_array, check_X_y, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from singa_dask.arrays import Array
from singa_dask.comm.remote_import import Guarded
from singa_dask.data.codecs.record_values import find_wrong_weight
from singa_dask.estimators.categories import categories_of, categories_of_parts, refuse_missing
from singa_dask.estimators.fit_facts import ArrayFacts, facts_of_both, facts_of_parts
from singa_dask.estimators.not_numbers import naming_values, refuse_dates, refuse_times
from singa_dask.estimators.sparse import is_sparse
from singa_dask.jobs.cluster import compute_on
from singa_dask.jobs.datasets.lazy_parts import array_of, map_parts, parts_of

Parts = list[Any]

FLOATS = (np.float64, np.float32)


class FitRecords(NamedTuple):
    """Features and targets to train with, and their statistics.

    Attributes
    ----------
    x, y : (N, ...) array
        NumPy arrays, or Dask arrays with equal chunks of records. ``x`` may also be a CSR matrix.
    weights : (N,) array or None
    x_facts, y_facts : ArrayFacts
        ``x_facts`` has the moments of dense features (N, D), if the net is new and is not from a ``job``. ``y_facts``
        has the classes for a classifier, or the moments of the targets for a regressor.
    """

    x: Any
    y: Any
    weights: Any
    x_facts: ArrayFacts
    y_facts: ArrayFacts


def checked_records(
    estimator: BaseEstimator, x: Any, y: Any, weights: Any, several_axes: bool, reset: bool = True, **given: Any
) -> FitRecords:
    """Check features and targets, and return them without the records of weight 0.

    Each Dask partition is computed once. The attributes ``n_features_in_`` and ``feature_names_in_`` of the estimator
    are set.

    Parameters
    ----------
    estimator : SingaEstimator
    x, y, weights
        Data as in `SingaEstimator.fit`.
    several_axes : bool
        Whether records may have several axes and uint8 values.
    reset : bool
        Whether names and number of the features may differ from the previous fit.
    **given
        Options of `sklearn.utils.validation.validate_data`.
    """
    _refuse_masked(X=x, y=y, sample_weight=weights)
    wanted = reset and not several_axes, is_classifier(estimator)
    if not is_dask_collection(x):
        y, weights = (compute_on(estimator.client, each)[0] for each in (y, weights))
        x, y = _checked(estimator, several_axes, reset, x, y, **given)
        if is_classifier(estimator) and y.ndim == 2:
            y = column_or_1d(y, warn=True) if y.shape[1] == 1 else y
        y = y.toarray() if is_sparse(y) else y
        if weights is not None:
            x, y, weights = _weighted(x, y, weights)
        if is_sparse(x):
            # sparse values have been checked to be finite, and need no other statistics
            return FitRecords(x, y, weights, ArrayFacts((len(y),), True), facts_of_both(y, y, False, wanted[1])[1])
        return FitRecords(x, y, weights, *facts_of_both(x, y, *wanted))
    x = _checked_meta(estimator, x, several_axes, reset=reset)
    if not is_dask_collection(y):
        y = da.from_array(np.asarray(y), chunks=-1)  # type: ignore[no-untyped-call]
    if weights is not None and hasattr(x, "chunks") and hasattr(y, "chunks") and x.shape[0] == y.shape[0]:
        y = y.rechunk({0: x.chunks[0]})
    if y.ndim == 2 and hasattr(y, "columns") and len(y.columns) == 1:
        y = y[y.columns[0]]
    y = _of_one_type(y, "y")
    parts = parts_of(x), parts_of(y)
    if weights is not None:
        parts, weights = _with_weights(x, *parts, weights)
    facts = facts_of_parts(*parts, *wanted, estimator.client)
    for name, each in zip("Xy", facts, strict=True):
        if not each.is_finite:
            raise ValueError(
                f"Input {name} contains NaN or infinity. Expected finite numbers. "
                "Leave these records out, or fill the values in."
            )
    n, n_targets = (sum(each.lengths) for each in facts)
    if n != n_targets:
        raise ValueError(f"X has {n} records, but y has {n_targets}.")
    if not n:
        raise ValueError("X has no records. Expected at least one.")
    x, y = (array_of(of, known.lengths, _meta_of(each)) for of, known, each in zip(parts, facts, (x, y), strict=True))
    if weights is not None:
        weights = array_of(weights, facts[0].lengths, np.empty(0))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    return FitRecords(x, y.rechunk({0: x.chunks[0], **dict.fromkeys(range(1, y.ndim), -1)}), weights, *facts)


def _weighted(x: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return the records in memory whose weights are positive, and their weights."""
    with naming_values(sample_weight=weights):
        weights = _check_sample_weight(weights, x, dtype=np.float64, ensure_non_negative=True)
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight: all are 0. Expected a positive one for at least one record.")
    return (x, y, weights) if kept.all() else (x[kept], y[kept], weights[kept])


def _with_weights(x: Any, x_parts: Parts, y_parts: Parts, weights: Any) -> tuple[tuple[Parts, Parts], Parts]:
    """Return the partitions of features, targets and weights, without records of weight 0.

    Weights must have the same partitions as X, unless X is an array with known chunks.

    Raises
    ------
    ValueError
        The partitions differ. When a partition is computed, the error is also raised if its weights are wrong, or their
        number differs from the number of records.
    """
    chunks = x.chunks[0] if hasattr(x, "chunks") else (np.nan,)
    is_known = not np.isnan(chunks).any()
    if not is_dask_collection(weights):
        if not is_known:
            raise ValueError(
                "sample_weight: in memory, but X is a Dask collection. Expected a Dask collection with X's partitions."
            )
        weights = da.from_array(np.asarray(weights), chunks=-1)  # type: ignore[no-untyped-call]
    if hasattr(weights, "chunks"):
        if weights.ndim != 1 or (is_known and weights.shape[0] != sum(chunks)):
            raise ValueError(f"sample_weight: shape {weights.shape}, expected a weight for each record of X.")
        weights = weights.rechunk((chunks,)) if is_known else weights
    parts = parts_of(weights)
    counts = {len(x_parts), len(y_parts), len(parts)}
    if len(counts) > 1:
        counted = f"X has {len(x_parts)} partitions, y {len(y_parts)} and sample_weight {len(parts)}"
        raise ValueError(f"{counted}. Expected equal numbers of partitions.")
    return (map_parts(_kept, x_parts, parts), map_parts(_kept, y_parts, parts)), map_parts(_kept, parts, parts)


def _kept(part: Any, weights: Any) -> Array:
    """Return the records of a partition whose weights are positive."""
    with naming_values(sample_weight=weights):
        values, factors = np.asarray(part), np.asarray(weights, np.float64).reshape(-1)
    if len(values) != len(factors):
        raise ValueError(f"sample_weight: {len(factors)} in a partition of {len(values)} records. Expected as many.")
    wrong = find_wrong_weight(factors)
    if wrong is not None:
        raise ValueError(f"sample_weight: record {wrong[0]} of a partition: {wrong[1]}.")
    return values if factors.all() else values[factors > 0]


def _meta_of(collection: Any) -> Any:
    """Return an empty array or frame of the same type as a Dask collection."""
    return np.empty((0, *collection.shape[1:]), collection.dtype) if hasattr(collection, "chunks") else collection._meta


def checked_features(estimator: BaseEstimator, x: Any, several_axes: bool) -> Any:
    """Check features to predict from, and return them. Dask collections stay lazy."""
    _refuse_masked(X=x)
    if is_dask_collection(x):
        return _checked_meta(estimator, x, several_axes, reset=False)
    return _checked(estimator, several_axes, False, x)


def _refuse_masked(**arrays: Any) -> None:
    """Raise a ValueError for masked values, which scikit-learn would treat as valid.

    For Dask, every masked array raises the error, even without masked values.
    """
    for name, values in arrays.items():
        is_lazy = is_dask_collection(values)
        sample = getattr(values, "_meta", None) if is_lazy else values
        if isinstance(sample, np.ma.MaskedArray) and (is_lazy or np.ma.is_masked(sample)):
            raise ValueError(f"{name} has masked values. Expected a value everywhere. Fill them, e.g. by filled(0).")


def _checked(estimator: Any, several_axes: bool, reset: bool, x: Any, *y: Any, **given: Any) -> Any:
    """Check features, or features and targets, in memory; return them with categories encoded."""
    kinds = (*FLOATS, np.uint8) if several_axes else FLOATS
    options = {"dtype": kinds, "allow_nd": several_axes, "accept_sparse": "csr", **given}
    refuse_times(x)
    if reset:
        estimator._categories = None if estimator.job is not None else categories_of(x)
    refuse_missing(x, [] if estimator._categories is None else estimator._categories.columns)
    for each in y:
        _refuse_missing_labels(each)
    targets = {} if is_classifier(estimator) else dict(zip(["y"], y, strict=False))
    if estimator._categories is None:
        with naming_values(X=x, **targets):
            return validate_data(estimator, x, *y, reset=reset, **options)
    _check_named(x)
    validate_data(estimator, x, skip_check_array=True, reset=reset)
    x = estimator._categories.encode(x, estimator.handle_unknown)
    with naming_values(**targets):
        return check_X_y(x, *y, **options) if y else check_array(x, **options)


def _checked_meta(estimator: Any, x: Any, several_axes: bool, reset: bool) -> Any:
    """Check names, number and types of a Dask collection's features.

    Returns
    -------
    dask.array or dask.dataframe
        The collection as NumPy numbers, with categories encoded.
    """
    options = {"dtype": "numeric", "allow_nd": several_axes, "ensure_min_samples": 0, "reset": reset}
    meta = _meta_of(x)
    refuse_times(meta)
    if reset:
        is_read_by_job = estimator.job is not None
        estimator._categories = None if is_read_by_job else categories_of_parts(x, meta, estimator)
    if estimator._categories is None:
        x = _of_one_type(x, "X")
        validate_data(estimator, _meta_of(x), **options)
        return x
    _check_named(meta)
    validate_data(estimator, meta, skip_check_array=True, reset=reset)
    parts = parts_of(x)
    encode = partial(estimator._categories.encode, handle_unknown=estimator.handle_unknown)
    return array_of(map_parts(encode, parts), (np.nan,) * len(parts), encode(meta))


def _refuse_missing_labels(y: Any) -> None:
    """Raise a ValueError if labels in a pandas object or in an array of objects are missing."""
    if hasattr(y, "isna"):
        missing = np.asarray(y.isna())
    elif isinstance(y, np.ndarray) and y.dtype.kind == "O":
        missing = np.array([each is None or each != each for each in y.ravel()])
    else:
        return
    if missing.any():
        raise ValueError(
            f"Input y contains NaN: {missing.sum()} of {missing.size} values are missing. Leave these records out of X "
            "and y."
        )


def _check_named(x: Any) -> None:
    if not hasattr(x, "iloc"):
        raise ValueError("X has no columns by name. Expected a frame with the columns of fit.")


def _of_one_type(x: Any, name: str) -> Any:
    """Return a collection, converted to floats if NumPy would convert it to objects.

    NumPy returns objects for a frame with both bool and numbers, or with pandas types such as Int64 and Sparse.
    Columns of objects must contain numbers.
    """
    types = set(_meta_of(x).dtypes) if hasattr(x, "to_dask_array") and x.ndim == 2 else set()
    is_plain = len(types) < 2 and all(isinstance(each, np.dtype) for each in types)
    if is_plain or any(each.kind not in "biufO" for each in types):
        return x
    return x.map_partitions(Guarded(partial(_as_floats, name)), meta=_meta_of(x).astype(np.float64))


def _as_floats(name: str, part: Any) -> Any:
    with naming_values(**{name: part}):
        return part.astype(np.float64)


def classes_of(facts: ArrayFacts) -> Any:
    """Return the sorted classes of labels; raise a ValueError for dates and continuous numbers."""
    classes = facts.distinct
    refuse_dates(classes)
    # repeat the classes, because scikit-learn warns if more than half of the labels are distinct
    check_classification_targets(np.resize(classes, min(sum(facts.lengths), 2 * len(classes))))
    return classes


def labels_of(y: Any, classes: Any) -> Any:
    """Return the class index of each label, (N,) int32."""
    if is_dask_collection(y):
        return y.map_blocks(Guarded(labels_of), classes, dtype=np.int32)
    return np.searchsorted(classes, y).astype(np.int32)


def drawn(lengths: Sequence[int], n: int, seed: int) -> Any:
    """Draw ``n`` records of Dask chunks at random; return a lazy mask, (N,) bool."""
    counts = np.random.default_rng(seed).multivariate_hypergeometric(lengths, n, method="marginals")
    sizes: Any = da.from_array(np.stack([lengths, counts], axis=1), chunks=(1, 2))  # type: ignore[no-untyped-call]
    options: dict[str, Any] = {"dtype": bool, "meta": np.empty(0, bool)}
    return sizes.map_blocks(Guarded(_drawn_of), seed, chunks=(tuple(lengths),), drop_axis=1, **options)


def _drawn_of(sizes: Array, seed: int, block_id: Sequence[int]) -> Any:
    ((length, n),) = sizes
    return np.random.default_rng([seed, *block_id]).permutation(length) < n
