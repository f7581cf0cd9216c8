"""Checks of what estimators are given: values in memory by scikit-learn, collections of Dask by their types."""

from __future__ import annotations

from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.base import is_dask_collection
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_array, check_X_y, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from singa_dask.data.codecs.labels import find_wrong_weight
from singa_dask.estimators.categories import Categories, category_columns
from singa_dask.estimators.facts import Facts, facts_of_both, facts_of_parts
from singa_dask.estimators.sparse_records import is_sparse
from singa_dask.jobs.datasets.partitions import array_of, map_parts, parts_of, rows_together

__all__ = ["Records", "checked_features", "checked_records", "classes_of", "labels_of"]

FLOATS = (np.float64, np.float32)

Parts = list[Any]


class Records(NamedTuple):
    """Features and targets to fit to, and what is known of them.

    Attributes
    ----------
    x, y : (N, ...) array
        Of NumPy, or of Dask with the same chunks of records; ``x`` may be a sparse matrix, in CSR format.
    weights : (N,) array or None
    x_facts, y_facts : Facts
        With the moments of dense features (N, D) of a new net without a job, the classes of a classifier, and the
        moments of the targets of a regressor.
    """

    x: Any
    y: Any
    weights: Any
    x_facts: Facts
    y_facts: Facts


def checked_records(
    estimator: BaseEstimator, x: Any, y: Any, weights: Any, several_axes: bool, reset: bool = True, **given: Any
) -> Records:
    """Return features and targets to fit to, of records whose weight is not 0; partitions of Dask are computed once.

    The estimator gets ``n_features_in_`` and ``feature_names_in_``.

    Parameters
    ----------
    x, y, weights
        As in `SingaEstimator.fit`.
    several_axes : bool
        Whether a record may have several axes, and its values may be uint8.
    reset : bool
        Whether the names and the number of features may be others than in the fit before.
    **given
        Options of `sklearn.utils.validation.validate_data`.
    """
    wanted = reset and not several_axes, is_classifier(estimator)
    if not is_dask_collection(x):
        y = y.compute() if is_dask_collection(y) else y
        x, y = _checked(estimator, several_axes, reset, x, y, **given)
        if is_classifier(estimator) and y.ndim == 2:
            y = column_or_1d(y, warn=True) if y.shape[1] == 1 else y
        y = y.toarray() if is_sparse(y) else y
        if weights is not None:
            x, y, weights = _weighted(x, y, weights.compute() if is_dask_collection(weights) else weights)
        if is_sparse(x):
            # its values are finite, and no other facts of it are needed
            return Records(x, y, weights, Facts((len(y),), True), facts_of_both(y, y, False, wanted[1])[1])
        return Records(x, y, weights, *facts_of_both(x, y, *wanted))
    _checked_meta(estimator, x, several_axes, reset=reset)
    if not is_dask_collection(y):
        y = da.from_array(np.asarray(y), chunks=-1)  # type: ignore[no-untyped-call]
    x, y = (rows_together(each) if hasattr(each, "chunks") else each for each in (x, y))
    if weights is not None and hasattr(x, "chunks") and hasattr(y, "chunks") and x.shape[0] == y.shape[0]:
        y = y.rechunk({0: x.chunks[0]})
    parts = parts_of(x), parts_of(y)
    if weights is not None:
        parts, weights = _with_weights(x, *parts, weights)
    facts = facts_of_parts(*parts, *wanted)
    for name, each in zip("Xy", facts, strict=True):
        if not each.is_finite:
            raise ValueError(
                f"Input {name} contains NaN or infinity. Expected finite numbers: leave out or fill in others."
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
    return Records(x, y.rechunk({0: x.chunks[0], **dict.fromkeys(range(1, y.ndim), -1)}), weights, *facts)


def _weighted(x: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return the records in memory whose weight is not 0, and their weights."""
    weights = _check_sample_weight(weights, x, dtype=np.float64, ensure_non_negative=True)
    kept = weights > 0
    if not kept.any():
        raise ValueError("sample_weight: all are 0. Expected a positive one for at least one record.")
    return (x, y, weights) if kept.all() else (x[kept], y[kept], weights[kept])


def _with_weights(x: Any, x_parts: Parts, y_parts: Parts, weights: Any) -> tuple[tuple[Parts, Parts], Parts]:
    """Return the partitions of features, targets and weights of the records whose weight is not 0.

    Weights have the partitions of X, or are any array if X is an array of known chunks. A ValueError says that they
    differ; to compute a partition raises it if there are more or fewer weights than records, or a wrong one.
    """
    chunks = x.chunks[0] if hasattr(x, "chunks") else (np.nan,)
    is_known = not np.isnan(chunks).any()
    if not is_dask_collection(weights):
        if not is_known:
            raise ValueError(
                "sample_weight: in memory, but X is of Dask. Expected one of Dask with the partitions of X."
            )
        weights = da.from_array(np.asarray(weights), chunks=-1)  # type: ignore[no-untyped-call]
    if hasattr(weights, "chunks"):
        if weights.ndim != 1 or (is_known and weights.shape[0] != sum(chunks)):
            raise ValueError(f"sample_weight: shape {weights.shape}, expected a weight for each record of X.")
        weights = rows_together(weights.rechunk((chunks,)) if is_known else weights)
    parts = parts_of(weights)
    counts = {len(x_parts), len(y_parts), len(parts)}
    if len(counts) > 1:
        found = f"X has {len(x_parts)} partitions, y {len(y_parts)} and sample_weight {len(parts)}"
        raise ValueError(f"{found}. Expected the same of all.")
    return (map_parts(_kept, x_parts, parts), map_parts(_kept, y_parts, parts)), map_parts(_kept, parts, parts)


def _kept(part: Any, weights: Any) -> npt.NDArray[Any]:
    """Return the records of a partition whose weight is not 0."""
    values, factors = np.asarray(part), np.asarray(weights, np.float64).reshape(-1)
    if len(values) != len(factors):
        raise ValueError(f"sample_weight: {len(factors)} in a partition of {len(values)} records. Expected as many.")
    wrong = find_wrong_weight(factors)
    if wrong is not None:
        raise ValueError(f"sample_weight: record {wrong[0]} of a partition: {wrong[1]}.")
    return values if factors.all() else values[factors > 0]


def _meta_of(collection: Any) -> Any:
    """Return a collection without records."""
    return np.empty((0, *collection.shape[1:]), collection.dtype) if hasattr(collection, "chunks") else collection._meta


def checked_features(estimator: BaseEstimator, x: Any, several_axes: bool) -> Any:
    """Return features to predict from, of those that the estimator was fitted to; collections of Dask stay ones."""
    if is_dask_collection(x):
        return _checked_meta(estimator, x, several_axes, reset=False)
    return _checked(estimator, several_axes, False, x)


def _checked(estimator: Any, several_axes: bool, reset: bool, x: Any, *y: Any, **given: Any) -> Any:
    """Check values in memory; return features, or features and targets, with the codes of categories."""
    kinds = (*FLOATS, np.uint8) if several_axes else FLOATS
    options = {"dtype": kinds, "allow_nd": several_axes, "accept_sparse": "csr", **given}
    if reset:
        columns = [] if several_axes else category_columns(x)
        estimator._categories = Categories(x, columns, estimator.handle_unknown) if columns else None
    if estimator._categories is None:
        return validate_data(estimator, x, *y, reset=reset, **options)
    validate_data(estimator, x, skip_check_array=True, reset=reset)
    if not hasattr(x, "iloc"):
        raise ValueError("X has no columns by name. Expected a frame of pandas with the columns of fit.")
    x = estimator._categories.encode(x)
    return check_X_y(x, *y, **options) if y else check_array(x, **options)


def _checked_meta(estimator: BaseEstimator, x: Any, several_axes: bool, reset: bool) -> Any:
    """Check names, number and types of the features of a collection; return it."""
    options = {"dtype": "numeric", "allow_nd": several_axes, "ensure_min_samples": 0, "reset": reset}
    if reset:
        estimator._categories = None
    if named := category_columns(_meta_of(x)):
        raise ValueError(
            f"columns of X that are no numbers: {', '.join(named)}. Expected numbers in a frame of Dask; encode these "
            "first, e.g. by dask.dataframe.get_dummies. Those of frames of pandas are encoded."
        )
    validate_data(estimator, _meta_of(x), **options)
    return x


def classes_of(facts: Facts) -> Any:
    """Return the classes among labels, sorted; ValueError if they are numbers of a continuous scale."""
    classes = facts.distinct
    # scikit-learn warns where more than half of the labels differ
    check_classification_targets(np.resize(classes, min(sum(facts.lengths), 2 * len(classes))))
    return classes


def labels_of(y: Any, classes: Any) -> Any:
    """Return the indices of the classes of labels, (N,) int32."""
    if is_dask_collection(y):
        return y.map_blocks(labels_of, classes, dtype=np.int32)
    return np.searchsorted(classes, y).astype(np.int32)
