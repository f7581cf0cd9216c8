"""What estimators check of features, targets and weights, and learn of them before a fit; sparse rows; categories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import compute, is_dask_collection
from dask.delayed import delayed
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils import check_array, check_X_y, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import count_nonzero, mean_variance_axis, min_max_axis
from sklearn.utils.validation import _check_sample_weight, validate_data

from singa_dask.arrays import Array
from singa_dask.data.codecs.record import find_wrong_weight
from singa_dask.data.codecs.scaling import Moments, Scaling
from singa_dask.errors import listed
from singa_dask.jobs.datasets.making import array_of, map_parts, parts_of
from singa_dask.registry import suggest

BLOCK = 1 << 22
"""Values of a dense block."""
ROWS = 200


def is_sparse(x: Any) -> bool:
    """Return whether an array is a sparse matrix."""
    return hasattr(x, "toarray")


def scaling_of_sparse(x: Any) -> Scaling:
    """Return the scaling of the columns of a sparse matrix, which leaves zeros what they are: nothing is subtracted."""
    mean, variance = mean_variance_axis(x.astype(np.float64), axis=0)
    low, high = min_max_axis(x, axis=0)
    moments = Moments(x.shape[0], mean, variance * x.shape[0], low, high, count_nonzero(x, axis=0))
    scaling = Scaling.of(moments)
    return Scaling(np.zeros_like(mean), scaling.std)


class SparseRecords:
    """The rows of a sparse matrix (n, features), CSR, scaled; ``records`` makes of dense rows what the net reads."""

    def __init__(self, x: Any, scaling: Scaling | None, records: Callable[[Array], Array]) -> None:
        self.shape = x.shape
        self._x, self._records = x, records
        if scaling is not None and not scaling.mean.any():
            # only what is not 0 has to be scaled
            self._x = x.astype(np.float32)
            self._x.data[...] = x.data / scaling.divisor[x.indices]
            self._records = np.asarray

    def __getitem__(self, rows: Any) -> Array:
        return self._records(self._x[rows].toarray())

    def slices(self) -> list[slice]:
        """Return the rows of each block."""
        n = max(1, BLOCK // self.shape[1] // ROWS) * ROWS
        return [slice(first, min(first + n, self.shape[0])) for first in range(0, self.shape[0], n)]

    def to_dask(self) -> Any:
        """Return an array of Dask of its blocks."""
        first, rows = self[:1], delayed(self.__getitem__)
        return da.concatenate(  # type: ignore[no-untyped-call]
            [da.from_delayed(rows(of), (of.stop - of.start, *first.shape[1:]), first.dtype) for of in self.slices()]  # type: ignore[no-untyped-call]
        )


Parts = list[Any]

FLOATS = (np.float64, np.float32)
UNKNOWN = ("error", "ignore")


class FitRecords(NamedTuple):
    """Features and targets to fit to, and what is known of them.

    Attributes
    ----------
    x, y : (N, ...) array
        Of NumPy, or of Dask with the same chunks of records; ``x`` may be a sparse matrix, in CSR format.
    weights : (N,) array or None
    x_facts, y_facts : ArrayFacts
        With the moments of dense features (N, D) of a new net without a job, the classes of a classifier, and the
        moments of the targets of a regressor.
    """

    x: Any
    y: Any
    weights: Any
    x_facts: ArrayFacts
    y_facts: ArrayFacts


def checked_records(
    estimator: BaseEstimator, x: Any, y: Any, weights: Any, several_axes: bool, reset: bool = True, **given: Any
) -> FitRecords:
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
    _refuse_masked(X=x, y=y, sample_weight=weights)
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
            return FitRecords(x, y, weights, ArrayFacts((len(y),), True), facts_of_both(y, y, False, wanted[1])[1])
        return FitRecords(x, y, weights, *facts_of_both(x, y, *wanted))
    _checked_meta(estimator, x, several_axes, reset=reset)
    if not is_dask_collection(y):
        y = da.from_array(np.asarray(y), chunks=-1)  # type: ignore[no-untyped-call]
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
    return FitRecords(x, y.rechunk({0: x.chunks[0], **dict.fromkeys(range(1, y.ndim), -1)}), weights, *facts)


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
        weights = weights.rechunk((chunks,)) if is_known else weights
    parts = parts_of(weights)
    counts = {len(x_parts), len(y_parts), len(parts)}
    if len(counts) > 1:
        counted = f"X has {len(x_parts)} partitions, y {len(y_parts)} and sample_weight {len(parts)}"
        raise ValueError(f"{counted}. Expected the same of all.")
    return (map_parts(_kept, x_parts, parts), map_parts(_kept, y_parts, parts)), map_parts(_kept, parts, parts)


def _kept(part: Any, weights: Any) -> Array:
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
    _refuse_masked(X=x)
    if is_dask_collection(x):
        return _checked_meta(estimator, x, several_axes, reset=False)
    return _checked(estimator, several_axes, False, x)


def _refuse_masked(**arrays: Any) -> None:
    """Raise a ValueError for masked values, which scikit-learn takes for valid ones; of Dask for arrays with masks."""
    for name, values in arrays.items():
        is_lazy = is_dask_collection(values)
        sample = getattr(values, "_meta", None) if is_lazy else values
        if isinstance(sample, np.ma.MaskedArray) and (is_lazy or np.ma.is_masked(sample)):
            raise ValueError(f"{name} has masked values. Expected a value everywhere: fill them, e.g. by filled(0).")


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


def classes_of(facts: ArrayFacts) -> Any:
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


def drawn(lengths: Sequence[int], n: int, seed: int) -> Any:
    """Return which of the records of chunks of Dask are among ``n`` drawn at random: (N,) bool of Dask."""
    counts = np.random.default_rng(seed).multivariate_hypergeometric(lengths, n, method="marginals")
    sizes: Any = da.from_array(np.stack([lengths, counts], axis=1), chunks=(1, 2))  # type: ignore[no-untyped-call]
    return sizes.map_blocks(_drawn_of, seed, chunks=(tuple(lengths),), drop_axis=1, dtype=bool, meta=np.empty(0, bool))


def _drawn_of(sizes: Array, seed: int, block_id: Sequence[int]) -> Any:
    ((length, n),) = sizes
    return np.random.default_rng([seed, *block_id]).permutation(length) < n


# -- facts that a fit needs before it trains, from one pass over features and targets --------------------------


class ArrayFacts(NamedTuple):
    """What is known of an array: moments of columns and distinct values, sorted, if they were asked for.

    ``lengths`` are the numbers of records of its partitions. If it has NaN or infinity, nothing else is known.
    """

    lengths: tuple[int, ...]
    is_finite: bool
    moments: Moments | None = None
    distinct: Any = None

    def merged(self, other: ArrayFacts) -> ArrayFacts:
        """Return those of both together."""
        lengths = self.lengths + other.lengths
        if not (self.is_finite and other.is_finite):
            return ArrayFacts(lengths, False)
        moments, distinct = self.moments, self.distinct
        if moments is not None and other.moments is not None:
            moments = moments.merged(other.moments)
        if distinct is not None and other.distinct is not None:
            distinct = _distinct(np.concatenate([distinct, other.distinct]))
        return ArrayFacts(lengths, True, moments, distinct)


def facts_of_both(x: Any, y: Any, moments: bool, distinct: bool) -> tuple[ArrayFacts, ArrayFacts]:
    """Return the facts of features and targets in memory; see `facts_of_parts`."""
    return _facts_of(x, moments, False), _facts_of(y, not distinct, distinct)


def facts_of_parts(x: list[Any], y: list[Any], moments: bool, distinct: bool) -> tuple[ArrayFacts, ArrayFacts]:
    """Return the facts of features and targets of Dask, whose partitions are computed once, in any order.

    ``moments`` are those of the features, ``distinct`` the values of the targets, of which else the moments are known.
    """
    facts: tuple[ArrayFacts, ArrayFacts] = compute(  # type: ignore[no-untyped-call]
        _reduced(map_parts(partial(_facts_of, moments=moments, distinct=False), x)),
        _reduced(map_parts(partial(_facts_of, moments=not distinct, distinct=distinct), y)),
    )
    return facts


def _facts_of(part: Any, moments: bool, distinct: bool) -> ArrayFacts:
    values = np.asarray(part)
    lengths = (len(values),)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return ArrayFacts(lengths, False)
    return ArrayFacts(lengths, True, Moments.of(values) if moments else None, _distinct(values) if distinct else None)


def _distinct(values: Array) -> Array:
    try:
        return np.unique(values)
    except TypeError as error:
        raise ValueError(
            "y has missing values, or values of several types. Expected numbers or texts: leave out or fill in others."
        ) from error


def _reduced(parts: list[Any]) -> Any:
    """Return facts together, merged two by two in a fixed order."""
    while len(parts) > 1:
        parts = map_parts(ArrayFacts.merged, parts[::2], parts[1::2]) + parts[len(parts) // 2 * 2 :]
    return parts[0]


# -- columns of texts and categories in frames of pandas: a number for each category, 1 where a record has it ---


def category_columns(x: Any) -> list[str]:
    """Return the columns of a frame of pandas, or of the meta of one of Dask, that have texts or categories."""
    if not hasattr(x, "iloc") or getattr(x, "ndim", 0) != 2 or not x.columns.is_unique:
        return []
    return [name for name, dtype in x.dtypes.items() if _is_category(str(dtype), x[name])]


def _is_category(dtype: str, column: Any) -> bool:
    # numbers may be objects
    return dtype.startswith(("category", "str")) or (
        dtype == "object" and any(isinstance(value, str) for value in column)
    )


class Categories:
    """One-hot codes of some columns of frames like one.

    The categories of a column of the type category are those of its type, else its values. A missing value is a
    category of its own, if there is any. What is no category is refused, or if ``handle_unknown`` is ``"ignore"`` all
    its codes are 0.
    """

    def __init__(self, frame: Any, columns: Sequence[str], handle_unknown: str) -> None:
        if handle_unknown not in UNKNOWN:
            raise ValueError(f"handle_unknown: {handle_unknown!r}. {suggest(str(handle_unknown), UNKNOWN)}")
        self._refuses = handle_unknown == "error"
        self._known = {name: self._categories(name, frame[name]) for name in columns}

    @staticmethod
    def _categories(name: str, column: Any) -> Array:
        values = list(column.cat.categories if hasattr(column, "cat") else column.dropna().unique())
        if len({type(value) for value in values}) > 1:
            raise ValueError(f"column {name!r} of X has values of several types. Expected texts, or numbers.")
        return np.array([*sorted(values), *([None] if column.isna().any() else [])], object)

    def encode(self, frame: Any) -> Array:
        """Return the numbers of a frame, (n, codes and other columns) float: the codes come first."""
        columns = []
        for name, known in self._known.items():
            values = np.where(frame[name].isna(), None, frame[name].to_numpy(object))
            unknown = sorted(map(str, set(values) - set(known)))
            if unknown and self._refuses:
                raise ValueError(
                    f"column {name!r} of X has unknown categories: {listed(unknown)}. Known: "
                    f"{listed(list(map(str, known)))}. Set handle_unknown='ignore' to take them for none of these."
                )
            columns += [values == category for category in known]
        others = frame.drop(columns=list(self._known))
        if others.shape[1]:
            columns += list(check_array(others, dtype=(np.float64, np.float32), input_name="X").T)
        return np.stack(columns, axis=1).astype(np.float64)
