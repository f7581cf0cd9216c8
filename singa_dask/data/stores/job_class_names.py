"""ClassNames: class names and columns of a job, which training learns and the stores of its nets are matched with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.stores.class_names import LabelMatch, find_label, has_several_labels, label_table, show_names
from singa_dask.data.stores.store import Store
from singa_dask.errors import DataError

__all__ = ["ClassNames"]


class ClassNames:
    """The class names of a job, by input layer of the training net. Shared by all nets of the job.

    Attributes
    ----------
    by_layer : dict of str to tuple of str
        Set from a checkpoint, or by the training layer when it opens its store. Empty if the labels have no names.
    inherited : dict of str to tuple of str
        Names in a checkpoint that a new run starts from. They are kept if all names of the training data are among
        them; otherwise the names of the training data are used.
    readers : dict of str to callable
        By input layer of the training net: opens its store and returns its class names. Only called if another net
        compares names before the training layer has opened its store.
    tables, inherited_tables : dict of str to TableFacts
        As ``by_layer`` and ``inherited``, for records from named columns.
    """

    def __init__(self) -> None:
        self.by_layer: dict[str, tuple[str, ...]] = {}
        self.inherited: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, Callable[[], tuple[str, ...]]] = {}
        self.tables: dict[str, TableFacts] = {}
        self.inherited_tables: dict[str, TableFacts] = {}

    def learn(self, layer: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names for a layer of the training net, given those of its store."""
        if not self.by_layer.get(layer):
            inherited = _find(self.inherited, layer)
            self.by_layer[layer] = inherited if set(names) <= set(inherited) and names else tuple(names)
        return self.by_layer[layer]

    def known_for(self, layer: str) -> tuple[str, ...]:
        """Return the names of a layer as far as they are known, or else those of `common`."""
        return _find(self.by_layer, layer)

    def common(self) -> tuple[str, ...]:
        """Return the names shared by all input layers of the training net that have names; empty if they differ."""
        return _find(self.by_layer, "")

    def to_dict(self) -> dict[str, list[str]]:
        """Return the names by layer, for a checkpoint."""
        return {layer: list(names) for layer, names in self.by_layer.items() if names}

    def find(self, layer: str) -> tuple[str, ...]:
        """Return the names for a layer of any net; empty if the net was trained on labels without names.

        Raises
        ------
        DataError
            The training net has several input layers with different classes, and none of them is ``layer``.
        """
        self._read()
        found = _find(self.by_layer, layer)
        if not found and layer not in self.by_layer and any(self.by_layer.values()):
            known = "; ".join(f"{name}: {show_names(names)}" for name, names in self.by_layer.items())
            raise DataError(
                f"layer {layer}: the training net has input layers of different classes: {known}. "
                "Expected a layer with the name of one of them."
            )
        return found

    def _read(self) -> None:
        """Open the stores of layers of the training net that have not been opened."""
        for name, read in self.readers.items():
            if name not in self.by_layer:
                self.learn(name, read())

    def table_of(self, layer: str, learns: bool) -> TableFacts | None:
        """Return what is known of the columns that a layer is to read; None if the layer is the first to learn it.

        ``learns`` says whether the layer belongs to the training net.
        """
        if learns:
            return self.tables.get(layer) or self.inherited_tables.get(layer)
        self._read()
        found = list(self.tables.values())
        same = found[0] if found and all(each == found[0] for each in found) else None
        return self.tables.get(layer, same)

    def match_table(self, layer: str, store: Store, learns: bool) -> None:
        """Learn what the columns of a store mean, or compare it with what the training net has learned.

        Raises
        ------
        DataError
            Values of records mean something else than in training.
        """
        facts = store.table_facts
        known = self.table_of(layer, learns) if facts is not None else None
        if learns and facts is not None:
            self.tables.setdefault(layer, facts)
        difference = facts.compare(known) if facts is not None and known is not None else ""
        if difference:
            raise DataError(
                f"{store.url}: {difference} in training. Convert training and test data together, with --split, or "
                "train and test with the tables themselves, with features and label in store_conf."
            )

    def tables_to_dict(self) -> dict[str, Any]:
        """Return `tables` for a checkpoint."""
        return {layer: facts.to_dict() for layer, facts in self.tables.items()}

    def match(self, layer: str, store: Store, learns: bool, required: bool, column: str = "") -> LabelMatch:
        """Match the labels of a store with those of the training net, by class name.

        Parameters
        ----------
        layer : str
            The layer that reads the store.
        learns : bool
            Whether the layer belongs to the training net.
        required : bool
            Whether labels are needed; otherwise labels that cannot be matched are dropped.
        column : str
            Name of the label to read, if records have several. Without it, several labels are dropped.

        Raises
        ------
        DataError
            Labels are required, but a class is not among those of the training data; or there is no such label.
        """
        index, names = find_label(store, column)
        if index is None and has_several_labels(store):
            return LabelMatch(drops=True)
        if not learns and not names:
            return LabelMatch(index=index)
        try:
            expected = self.learn(layer, names) if learns else self.find(layer)
            table = label_table(store.url, names, expected, "the checkpoint" if learns else "training")
        except DataError:
            if required:
                raise
            return LabelMatch(drops=True)
        return LabelMatch(table, url=store.url, index=index)


def _find(by_layer: Mapping[str, tuple[str, ...]], layer: str) -> tuple[str, ...]:
    """Return the names of a layer, or else those shared by all layers with names."""
    if layer in by_layer:
        return by_layer[layer]
    distinct = {names for names in by_layer.values() if names}
    return distinct.pop() if len(distinct) == 1 else ()
