"""Tables with named columns for ``init``: which columns are features, categories, and label or target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from singa_dask.data import open_store
from singa_dask.data.types import TableColumn
from singa_dask.errors import DataError

__all__ = ["LABEL_NAMES", "choose_columns", "describe_left_out", "target_statistics"]

# columns that are labels by their name; else the last one is
LABEL_NAMES = ("label", "labels", "class", "target", "species", "y")
# strings with more different values than this are no categories
MAX_CATEGORIES = 50
# least number of records for each category, on average
MIN_RECORDS = 4
# columns of strings that are looked at
MAX_STRINGS = 50
# integers are to be predicted as numbers if there are more different ones than this, and many for the number of records
MAX_CLASSES = 100
# of the error for numbers like 1,5
DECIMAL_COMMA = "has a decimal comma"


def choose_columns(
    place: str, backend: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[TableColumn, ...]]:
    """Choose the columns of a table as keys of ``store_conf``; empty if it is records as they are.

    The index of pandas or Dask is neither a feature nor a label.

    Returns
    -------
    dict
    tuple of TableColumn
        The other columns, which are left out.

    Raises
    ------
    DataError
        It is neither.
    """
    try:
        with open_store(place, backend, **options):
            return {}, ()
    except DataError as error:
        refused = error
    try:
        with open_store(place, "table", missing=0, **options) as store:
            named, count = [each for each in store.table_columns if each.name], store.count
        kinds = {each.name: each.kind for each in named if not each.is_index}
        usable = [name for name, kind in kinds.items() if kind in ("number", "boolean", "string")]
        label = next((name for name in usable if name.lower() in LABEL_NAMES), usable[-1])
        others = [name for name in usable if name != label]
        numbers = [name for name in others if kinds[name] != "string"]
        outputs = _outputs(place, label, kinds[label], options)
        categories = _categories(place, [name for name in others if name not in numbers], count, options)
        columns = {"features": [name for name in others if name in numbers or name in categories], **outputs}
        if categories:
            columns["categories"] = categories
        with open_store(place, "table", missing="skip", **columns, **options) as store:
            if store.count != count:
                columns["missing"] = "mean"
        return columns, tuple(each for each in named if each.name not in (*columns["features"], label))
    except DataError as error:
        if "no columns of numbers" in str(error):
            raise DataError(
                f"{error} Text is read where a column of numbers is, too: as categories, or a label."
            ) from None
        raise (error if DECIMAL_COMMA in str(error) else refused) from None


def _outputs(place: str, label: str, kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return whether a column is a label, whose values are classes, or a target."""
    if kind != "number":
        return {"label": label}
    with open_store(place, "table", features=[label], missing="skip", **options) as store:
        blocks = range(len(store.blocks))
        values = np.concatenate([store.read_block(block)["data"].ravel() for block in blocks])
    different = len(np.unique(values))
    are_many = different > MAX_CLASSES and different > len(values) / 10
    if are_many or (values != values.round()).any() or values.min() < 0:
        return {"target": [label]}
    return {"label": label}


def _categories(place: str, names: list[str], count: int, options: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the columns of strings that are categories: with the names, if some values are missing, else without."""
    found: dict[str, list[str]] = {}
    for name in names[:MAX_STRINGS]:
        try:
            with open_store(place, "table", features=[name], categories={name: []}, missing="skip", **options) as store:
                known = store.table_facts.categories[name] if store.table_facts else ()
                is_whole = store.count == count
            if 1 < len(known) <= min(MAX_CATEGORIES, count / MIN_RECORDS):
                found[name] = [] if is_whole else ["", *known]
        except DataError:
            # too many names
            continue
    return found


def target_statistics(values: list[np.ndarray[Any, Any]]) -> tuple[float, float]:
    """Return mean and standard deviation of a target, 1 if it is constant."""
    whole = np.concatenate(values).astype(np.float64)
    return float(whole.mean()), float(whole.std()) or 1.0


def describe_left_out(columns: Iterable[TableColumn]) -> str:
    """Return names of columns that are left out, and why each is."""
    return ", ".join(f"{' '.join(each.name.split())} ({_reason(each)})" for each in columns)


def _reason(column: TableColumn) -> str:
    if column.is_index:
        return "index"
    return "texts, not categories" if column.kind == "string" else column.kind
