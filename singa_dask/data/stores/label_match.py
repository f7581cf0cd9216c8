"""Select one of several labels, and match it by class name with the labels of the training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.equal_names import NameNumbers
from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError
from singa_dask.wording import listed

Labels = npt.NDArray[np.int32]


@dataclass(frozen=True)
class LabelMatch:
    """Conversion of the labels of a store.

    Attributes
    ----------
    table : (n,) int32, or None
        New label, indexed by the store's label; None if labels do not change.
    drops : bool
        Whether to drop the labels.
    url : str
        URL of the store.
    index : int or None
        Index of the label to keep, if records have several labels.
    """

    table: Labels | None = None
    drops: bool = False
    url: str = ""
    index: int | None = None

    def apply(self, arrays: Arrays) -> Arrays:
        """Return records with converted labels."""
        if "label" not in arrays or (self.table is None and self.index is None and not self.drops):
            return arrays
        if self.drops:
            return {name: array for name, array in arrays.items() if name != "label"}
        labels = arrays["label"] if self.index is None else arrays["label"][:, self.index]
        return {**arrays, "label": labels if self.table is None else relabel(labels, self.table, self.url)}


def has_several_labels(store: Store) -> bool:
    """Return whether each record of a store has several labels."""
    return "label" in store.schema and bool(store.schema["label"].shape)


def label_columns(store: Store) -> list[str]:
    """Return the names of the columns of labels, in the order of a record; empty if unknown."""
    indices = {each.name: each.index for each in store.table_columns if each.field == "label"}
    labels = store.table_facts.labels if store.table_facts and "label" in store.schema else {}
    return sorted(indices, key=lambda name: indices[name]) or list(labels)


def check_label(store: Store, label: str) -> None:
    """Raise a `DataError` if the user names a label of converted records that does not exist.

    A job may name such a label, because it may read other records with the same keys.
    """
    named = [] if has_several_labels(store) else label_columns(store)
    known = ["label", *named] if "label" in store.schema else []
    if label and store.is_converted and label not in known:
        there = f"It has {' or '.join(known)}" if known else "It has none"
        raise DataError(
            f"{store.url}: the data has no label {label!r}: the conversion chose the labels to keep. {there}."
        )


def find_label(store: Store, column: str) -> tuple[int | None, tuple[str, ...]]:
    """Return the index of a label, or None if records have only one label; and the label's class names.

    Parameters
    ----------
    store : Store
    column : str
        Name of the label. If ``column`` is empty and records have several labels, no label is selected.

    Raises
    ------
    DataError
        The store has no label of this name.
    """
    several = has_several_labels(store)
    if not column:
        return None, () if several else store.class_names
    known = label_columns(store)
    if column not in known:
        hint = f"Its labels: {listed(known)}." if any(known) else "It has no labels with names of columns."
        raise DataError(f"{store.url}: there is no label {column!r}. {hint}")
    if not several:
        return None, store.class_names
    return known.index(column), store.table_facts.classes_of(column) if store.table_facts else ()


def find_label_type(store: Store, column: str) -> str:
    """Return the type of a label's values; see `label_type`.

    ``column`` names the label, as in `find_label`.
    """
    if store.table_facts is None:
        return store.class_type
    names = [column] if column in store.table_facts.labels else label_columns(store)
    return store.table_facts.label_types.get(names[0], "") if len(names) == 1 else ""


def label_table(url: str, names: Sequence[str], expected: Sequence[str], learned: str) -> Labels | None:
    """Return the new label for each label of a store, matched by class name.

    Parameters
    ----------
    url : str
        URL of the store.
    names : sequence of str
        Class names of the store.
    expected : sequence of str
        Class names in the order of the new labels.
    learned : str
        Where the ``expected`` names come from, for the error message.

    Returns
    -------
    (n,) int32, or None
        The new labels. None if labels do not change, or if ``names`` or ``expected`` is empty.

    Raises
    ------
    DataError
        A name is not one of the expected names.
    """
    if not names or not expected or tuple(names) == tuple(expected)[: len(names)]:
        return None
    index = NameNumbers(expected)
    unknown = [name for name in names if index[name] < 0]
    if unknown:
        raise DataError(
            f"{url}: unknown class names: {listed(unknown)}. Its classes are {listed(names)}. "
            f"Expected some of the classes of {learned}: {listed(expected)}."
        )
    return np.array([index[name] for name in names], np.int32)


def relabel(labels: npt.NDArray[Any], table: Labels, where: str) -> Labels:
    """Return ``table[labels]``, (n,) int32.

    Parameters
    ----------
    labels : (n,) integers
    table : (classes,) int32
        New label for each label; see `label_table`.
    where : str
        Text with which the error message begins.

    Raises
    ------
    DataError
        A label has no class name.
    """
    if len(labels) and (labels.min() < 0 or labels.max() >= len(table)):
        wrong = labels[(labels < 0) | (labels >= len(table))][0]
        raise DataError(f"{where}: label {wrong} has no class name. Expected 0 to {len(table) - 1}.")
    relabelled: Labels = table[labels]
    return relabelled
