"""Class names: what the labels of a store mean, compared by name between stores and with what a net has learned."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.data.stores.store import Store
from singa_dask.data.types import Arrays
from singa_dask.errors import DataError

__all__ = ["ClassNames", "LabelMatch", "Labels", "label_table", "parse_names", "relabel", "show_names", "write_options"]

# names that an error shows of one list
MAX_SHOWN = 20

Labels = npt.NDArray[np.int32]


class ClassNames:
    """The class names that a net learns, by input layer of the training net; shared by all nets of a job.

    Attributes
    ----------
    by_layer : dict of str to tuple of str
        Filled from a checkpoint, or by the training layer when it opens its store; empty tuples: labels have no names.
    inherited : dict of str to tuple of str
        Names in a checkpoint that a new run starts from: training data that has only names among them keeps their
        labels, other training data brings its own names.
    readers : dict of str to callable
        By input layer of the training net: opens its store and returns its class names. Called only where another net
        has names to compare before the training layer has opened its store.
    """

    def __init__(self) -> None:
        self.by_layer: dict[str, tuple[str, ...]] = {}
        self.inherited: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, Callable[[], tuple[str, ...]]] = {}

    def learn(self, layer: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names that a layer of the training net has to use, given those of its store."""
        if not self.by_layer.get(layer):
            inherited = _find(self.inherited, layer)
            self.by_layer[layer] = inherited if set(names) <= set(inherited) and names else tuple(names)
        return self.by_layer[layer]

    def common(self) -> tuple[str, ...]:
        """Return the names that all input layers of the training net with class names have; none if they differ."""
        return _find(self.by_layer, "")

    def to_dict(self) -> dict[str, list[str]]:
        """Return the names by layer, for a checkpoint."""
        return {layer: list(names) for layer, names in self.by_layer.items() if names}

    def find(self, layer: str) -> tuple[str, ...]:
        """Return the names that a layer of any net has to use; none if the net was trained on labels without names.

        Raises
        ------
        DataError
            The training net has several input layers of different classes, none of them called ``layer``.
        """
        for name, read in self.readers.items():
            if name not in self.by_layer:
                self.learn(name, read())
        found = _find(self.by_layer, layer)
        if not found and layer not in self.by_layer and any(self.by_layer.values()):
            known = "; ".join(f"{name}: {show_names(names)}" for name, names in self.by_layer.items())
            raise DataError(
                f"layer {layer}: the training net has input layers of different classes: {known}. "
                "Expected a layer with the name of one of them."
            )
        return found

    def match(self, layer: str, store: Store, learns: bool, required: bool) -> LabelMatch:
        """Match the labels of a store, by class name, with those of the training net.

        Parameters
        ----------
        layer : str
            That reads the store.
        learns : bool
            It belongs to the training net.
        required : bool
            Whether labels are needed; otherwise labels that cannot be matched are left out.

        Raises
        ------
        DataError
            Labels are required, and a class is not one of the training data.
        """
        if not learns and not store.class_names:
            return LabelMatch()
        try:
            expected = self.learn(layer, store.class_names) if learns else self.find(layer)
            table = label_table(store.url, store.class_names, expected, "the checkpoint" if learns else "training")
        except DataError:
            if required:
                raise
            return LabelMatch(drops=True)
        return LabelMatch(table, url=store.url)


@dataclass(frozen=True)
class LabelMatch:
    """What becomes of the labels of a store.

    Attributes
    ----------
    table : (n,) int32, or None
        Label to use for each label; None: as they are.
    drops : bool
        Leave the labels out.
    url : str
        Of the store.
    """

    table: Labels | None = None
    drops: bool = False
    url: str = ""

    def apply(self, arrays: Arrays) -> Arrays:
        """Return records with the labels to use."""
        if "label" not in arrays or (self.table is None and not self.drops):
            return arrays
        if self.table is None:
            return {name: array for name, array in arrays.items() if name != "label"}
        return {**arrays, "label": relabel(arrays["label"], self.table, self.url)}


def _find(by_layer: Mapping[str, tuple[str, ...]], layer: str) -> tuple[str, ...]:
    """Return the names of a layer, else those that all layers with names have in common."""
    if layer in by_layer:
        return by_layer[layer]
    distinct = {names for names in by_layer.values() if names}
    return distinct.pop() if len(distinct) == 1 else ()


def label_table(url: str, names: Sequence[str], expected: Sequence[str], learned: str) -> Labels | None:
    """Return the label to use for each label of a store, matched by class name.

    Parameters
    ----------
    url : str
        Of the store.
    names : sequence of str
        Its class names.
    expected : sequence of str
        Names in the order of the labels to use.
    learned : str
        Where ``expected`` comes from, for the error.

    Returns
    -------
    (n,) int32, or None
        None if nothing changes: the labels are right as they are, or one side has no names.

    Raises
    ------
    DataError
        A name is not among the expected ones.
    """
    if not names or not expected or tuple(names) == tuple(expected)[: len(names)]:
        return None
    places = {name: place for place, name in enumerate(expected)}
    unknown = [name for name in names if name not in places]
    if unknown:
        raise DataError(
            f"{url}: unknown class names: {show_names(unknown)}. Its classes are {show_names(names)}. "
            f"Expected some of the classes of {learned}: {show_names(expected)}."
        )
    return np.array([places[name] for name in names], np.int32)


def relabel(labels: npt.NDArray[Any], table: Labels, where: str) -> Labels:
    """Return ``table[labels]``.

    Raises
    ------
    DataError
        A label has no class name.
    """
    if len(labels) and (labels.min() < 0 or labels.max() >= len(table)):
        wrong = labels[(labels < 0) | (labels >= len(table))][0]
        raise DataError(f"{where}: label {wrong} has no class name. Expected 0 to {len(table) - 1}.")
    found: Labels = table[labels]
    return found


def show_names(names: Sequence[str]) -> str:
    """Write names for a message: at most 20 of them."""
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"{', '.join(names[:MAX_SHOWN])}{more}"


def parse_names(found: Any) -> tuple[str, ...]:
    """Return class names that a file notes: a list of different strings, or its JSON; none if it is anything else."""
    if isinstance(found, (bytes, str)):
        try:
            found = json.loads(found)
        except ValueError:
            return ()
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found) if len(set(found)) == len(found) else ()


def write_options(target: type[Store], names: Sequence[str]) -> dict[str, Any]:
    """Return the option that gives class names to a store's ``write``, where there are any and it takes them."""
    takes = "class_names" in inspect.signature(target.write).parameters
    return {"class_names": tuple(names)} if names and takes else {}
