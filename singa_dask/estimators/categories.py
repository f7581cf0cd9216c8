"""One-hot encode columns of text and categories in pandas and Dask frames."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from singa_dask.arrays import Array
from singa_dask.data.codecs.equal_names import NameNumbers, distinct_names
from singa_dask.data.tables.facts import are_too_many
from singa_dask.errors import warn_caller
from singa_dask.estimators.not_numbers import naming_values
from singa_dask.jobs.cluster import compute_on
from singa_dask.jobs.datasets.lazy_parts import map_parts, parts_of
from singa_dask.wording import listed, suggest

UNKNOWN = ("error", "ignore")
# matches texts such as 22.1%, $1,200 or (5.00); a column with more than MANY_NUMBERS different texts of this form
# hardly has categories
NUMBER = re.compile(r"[-+(]?\W{0,3}\d[\d.,'\s]*\W{0,3}")
MANY_NUMBERS = 20


def categories_of(x: Any) -> Categories | None:
    """Return the encoder for a pandas frame; None if ``x`` has no columns with categories, or is no frame."""
    columns = category_columns(x)
    return Categories([values_of(x, columns)]) if columns else None


def categories_of_parts(x: Any, meta: Any, estimator: Any) -> Categories | None:
    """Return the encoder for a Dask frame; None if no column has categories.

    ``meta`` is the empty frame that describes ``x``. If columns have categories, these columns are computed once.
    """
    # a column of dtype object can have strings or other values, so inspect the values
    objects = [name for name, dtype in meta.dtypes.items() if dtype == "object"] if hasattr(meta, "iloc") else []
    columns = [*dict.fromkeys([*category_columns(meta), *objects])]
    if not columns:
        return None
    found = compute_on(estimator.client, *map_parts(partial(values_of, columns=columns), parts_of(x[columns])))
    texts = {name for each in found for name in objects if any(isinstance(value, str) for value in each[name][0])}
    kept = [name for name in columns if name not in objects or name in texts]
    parts = [{name: each[name] for name in kept} for each in found]
    return Categories(parts) if kept else None


def category_columns(x: Any) -> list[str]:
    """Return the columns of a pandas frame, or of a Dask frame's ``_meta``, that have text or categories."""
    if not hasattr(x, "iloc") or getattr(x, "ndim", 0) != 2 or not x.columns.is_unique:
        return []
    return [name for name, dtype in x.dtypes.items() if _is_category(str(dtype), x[name])]


def _is_category(dtype: str, column: Any) -> bool:
    # a column of dtype object may also hold numbers
    return dtype.startswith(("category", "str")) or (
        dtype == "object" and any(isinstance(value, str) for value in column)
    )


class Values(NamedTuple):
    """The distinct values of a column, whether values are missing, and how many values are text.

    For columns of the pandas type category, the number of texts is 0.
    """

    values: list[Any]
    has_missing: bool
    n_texts: int


def values_of(frame: Any, columns: Sequence[str]) -> dict[str, Values]:
    """Return the distinct values of pandas columns; for type category, all categories of the type."""
    found = {}
    for name in columns:
        column = frame[name]
        is_category = hasattr(column, "cat")
        values = column.cat.categories if is_category else column.dropna().unique()
        found[name] = Values(list(values), bool(column.isna().any()), 0 if is_category else len(column))
    return found


def refuse_missing(x: Any, categories: Collection[str]) -> None:
    """Raise a ValueError if columns of a pandas frame have missing numbers; the error names the columns.

    Missing values are allowed in the columns ``categories``.
    """
    if not hasattr(x, "iloc") or getattr(x, "ndim", 0) != 2 or not x.columns.is_unique:
        return
    counts = {name: int(n) for name, n in x.isna().sum().items() if n and name not in categories}
    if counts:
        named = listed([f"{name!r} ({n} of {len(x)})" for name, n in counts.items()])
        raise ValueError(
            f"Input X contains NaN in the columns {named}. Expected finite numbers. Fill them in, e.g. by "
            "X.fillna(X.mean()), or leave these records out of X and y."
        )


class Categories:
    """One-hot encoder of the ``columns`` of frames, from the results of `values_of` for all partitions.

    Missing values are a category of their own.
    """

    def __init__(self, found: Sequence[Mapping[str, Values]]) -> None:
        self.columns = list(found[0])
        self._known = {name: self._categories(name, [each[name] for each in found]) for name in found[0]}

    @staticmethod
    def _categories(name: str, found: Sequence[Values]) -> Array:
        values = [*dict.fromkeys(value for each in found for value in each.values)]
        n = sum(each.n_texts for each in found)
        if n and are_too_many(len(values), n):
            raise ValueError(
                f"column {name!r} of X has {len(values)} different texts in {n} records, such as {values[0]!r}. "
                "Expected categories, each in several records. Drop the column, or convert texts that are numbers or "
                "dates to numbers."
            )
        if n and len(values) > MANY_NUMBERS and all(NUMBER.fullmatch(str(value).strip()) for value in values):
            warn_caller(
                f"column {name!r} of X: {len(values)} different texts, such as {values[0]!r}, are taken for "
                "categories. Convert the column to numbers if it means numbers."
            )
        if len({type(value) for value in values}) > 1:
            raise ValueError(f"column {name!r} of X has values of several types. Expected texts, or numbers.")
        values = list(distinct_names(values)) if values and isinstance(values[0], str) else values
        return np.array([*sorted(values), *([None] if any(each.has_missing for each in found) else [])], object)

    def encode(self, frame: Any, handle_unknown: str) -> Array:
        """Convert a frame to numbers, (n, columns) float64. The one-hot codes precede all other columns.

        If ``handle_unknown`` is ``"ignore"``, unknown categories are encoded as zeros; otherwise they are errors.
        """
        if handle_unknown not in UNKNOWN:
            raise ValueError(f"handle_unknown: {handle_unknown!r}. {suggest(str(handle_unknown), UNKNOWN)}")
        columns = []
        for name, known in self._known.items():
            values: Any = np.where(frame[name].isna(), None, frame[name].to_numpy(object))
            names, others = NameNumbers([each for each in known if isinstance(each, str)]), set(values) - set(known)
            same = {each: known[names[each]] for each in others if isinstance(each, str) and names[each] >= 0}
            values = np.array([same.get(each, each) for each in values], object) if same else values
            unknown = sorted(map(str, others - same.keys()))
            if unknown and handle_unknown == "error":
                raise ValueError(
                    f"column {name!r} of X has unknown categories: {listed(unknown)}. Known: "
                    f"{listed(list(map(str, known)))}. Set handle_unknown='ignore' to encode them as zeros."
                )
            columns += [values == category for category in known]
        others = frame.drop(columns=list(self._known))
        if others.shape[1]:
            refuse_missing(others, ())
            options: dict[str, Any] = {"dtype": (np.float64, np.float32), "ensure_min_samples": 0, "input_name": "X"}
            with naming_values(X=others):
                columns += list(check_array(others, **options).T)
        return np.stack(columns, axis=1).astype(np.float64)
