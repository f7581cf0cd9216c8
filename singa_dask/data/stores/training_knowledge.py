"""Classes, columns and scalings of the training data, in checkpoints and in a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from singa_dask.data.codecs.class_types import class_values
from singa_dask.data.codecs.equal_names import NameNumbers
from singa_dask.data.stores.label_match import LabelMatch, find_label, find_label_type, has_several_labels, label_table
from singa_dask.data.stores.store import Store
from singa_dask.data.tables.facts import TableFacts
from singa_dask.data.tables.kept_columns import TEXT, ColumnReading
from singa_dask.data.tables.scaling import Scaling
from singa_dask.data.tables.spelling import NO_SPELLING
from singa_dask.errors import DataError
from singa_dask.wording import listed


class Learned(NamedTuple):
    """Knowledge of a checkpoint about the training data, for each input layer of the training net.

    ``class_types`` has the types of the labels before they became ``class_names``; see `label_type`. ``encodings``
    describes conversions of a layer's values that an estimator makes outside of the net. Only the estimator can predict
    with such a net.
    """

    class_names: dict[str, tuple[str, ...]]
    tables: dict[str, TableFacts]
    scalings: dict[str, Scaling]
    class_types: dict[str, str]
    encodings: dict[str, str]

    @classmethod
    def of(cls, *manifests: Mapping[str, Any]) -> Learned:
        """Merge the knowledge in the manifests of several checkpoints. Later manifests take precedence."""
        return cls(
            {name: tuple(each) for one in manifests for name, each in one.get("class_names", {}).items()},
            {name: TableFacts.from_dict(each) for one in manifests for name, each in one.get("tables", {}).items()},
            {name: Scaling.from_dict(each) for one in manifests for name, each in one.get("scalings", {}).items()},
            {name: str(each) for one in manifests for name, each in one.get("class_types", {}).items()},
            {name: str(each) for one in manifests for name, each in one.get("encodings", {}).items()},
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the non-empty entries for the manifest of a checkpoint."""
        described: dict[str, dict[str, Any]] = {
            "class_names": {layer: list(names) for layer, names in self.class_names.items() if names},
            "tables": {layer: facts.to_dict() for layer, facts in self.tables.items()},
            "scalings": {layer: scaling.to_dict() for layer, scaling in self.scalings.items()},
            "class_types": {layer: each for layer, each in self.class_types.items() if each},
            "encodings": dict(self.encodings),
        }
        return {key: value for key, value in described.items() if value}


class TrainingKnowledge:
    """Knowledge of a job about the training data, for each input layer of the training net.

    For each layer, it has class names and their types, facts on the columns of a table, and the scaling. All nets of
    the job share this object.

    Attributes
    ----------
    known : Learned
        Facts from a checkpoint, or from the store of a training layer after the store was opened. Scalings are known
        before training begins.
    inherited : Learned
        Facts from the checkpoint that a new run takes its initial values from. The class names in this checkpoint are
        used if they include all class names of the training data. Otherwise the class names of the training data are
        used.
    readers : dict of str to callable
        For each input layer of the training net, a function that opens the layer's store, and returns its class names
        and their type. The function is called if another net needs the names before the training layer has opened the
        store.
    """

    def __init__(self, learned: Learned | None = None) -> None:
        self.known = Learned.of()
        self.inherited = Learned.of()
        self.readers: dict[str, Callable[[], tuple[tuple[str, ...], str]]] = {}
        self.update(learned or Learned.of())

    def learn(self, layer: str, names: Sequence[str], of_type: str = "") -> tuple[str, ...]:
        """Set the class names of a layer of the training net, and return them.

        ``names`` are the class names in the layer's store, and ``of_type`` is the type of the labels; see `label_type`.
        """
        known = self.known.class_names
        if not known.get(layer):
            inherited = _find(self.inherited.class_names, layer)
            index = NameNumbers(inherited)
            known[layer] = inherited if names and all(index[name] >= 0 for name in names) else tuple(names)
            self.known.class_types[layer] = of_type
        return known[layer]

    def known_for(self, layer: str) -> tuple[str, ...]:
        """Return the class names of a layer if known, else the class names of all other layers if these agree."""
        return _find(self.known.class_names, layer)

    def update(self, learned: Learned) -> None:
        """Add the names and facts in a checkpoint."""
        for name, known in self.known._asdict().items():
            known.update(getattr(learned, name))

    def type_for(self, layer: str) -> str:
        """Return the `label_type` of the class names in `known_for`; empty for strings, or if unknown."""
        types, names = self.known.class_types, self.known.class_names
        if layer in names:
            return types.get(layer, "")
        distinct = {types.get(name, "") for name, each in names.items() if each}
        return distinct.pop() if len(distinct) == 1 else ""

    def column_reading(self) -> ColumnReading:
        """Return how to read columns of the training data that are written beside predictions."""
        kinds, spelling = dict[str, str](), NO_SPELLING
        for facts in self.known.tables.values():
            kinds |= dict.fromkeys((*facts.categories, *facts.texts), TEXT)
            kinds |= {
                name: "b" if name in (facts.booleans or ()) else "f" for name in filter(facts.is_number, facts.features)
            }
            kinds |= {
                column: class_values(names, facts.label_types.get(column, "")).dtype.kind if names else "i"
                for column, names in facts.labels.items()
            }
            spelling = spelling.over(facts.spelling)
        return ColumnReading(kinds, spelling)

    def find(self, layer: str) -> tuple[str, ...]:
        """Return the class names for a layer of any net; empty if training labels have no names.

        Raises a `DataError` if ``layer`` is not an input layer of the training net, and these input layers have
        different classes.
        """
        self._read()
        class_names = _find(self.known.class_names, layer)
        if not class_names and layer not in self.known.class_names and any(self.known.class_names.values()):
            known = "; ".join(f"{name}: {listed(names)}" for name, names in self.known.class_names.items())
            raise DataError(
                f"layer {layer}: the input layers of the training net have different classes: {known}. Name the layer "
                f"like one of them."
            )
        return class_names

    def _read(self) -> None:
        """Open the stores of layers of the training net that have not been opened."""
        for name, read in self.readers.items():
            if name not in self.known.class_names:
                self.learn(name, *read())

    def table_of(self, layer: str, learns: bool) -> TableFacts | None:
        """Return the facts on the columns of a layer; None if this layer is the first to learn them.

        Pass ``learns=True`` for a layer of the training net. For other layers, the facts include the means of
        standardised columns.
        """
        if learns:
            return self.known.tables.get(layer) or self.inherited.tables.get(layer)
        self._read()
        tables = list(self.known.tables.values())
        same = tables[0] if tables and all(each == tables[0] for each in tables) else None
        facts, scaling = self.known.tables.get(layer, same), self.scaling_of(layer)
        return facts.with_means(scaling.mean) if facts and scaling else facts

    def match_table(self, layer: str, store: Store, learns: bool) -> None:
        """Learn the meaning of a store's columns, or compare it with what the training net has learned.

        Raises a `DataError` if values of records have another meaning than in training.
        """
        facts = store.table_facts
        known = self.table_of(layer, learns) if facts is not None else None
        if learns and facts is not None:
            self.known.tables.setdefault(layer, facts)
        if facts is not None and known is not None and (difference := facts.compare(known)):
            raise DataError(
                f"{store.url}: {difference} in training. Convert training and test data together, with --split, or "
                "train and test with the tables themselves, with features and label in store_conf."
            )

    def scaling_of(self, layer: str) -> Scaling | None:
        """Return the scaling of a layer, or else the only scaling of the job; None if there is none."""
        only = next(iter(self.known.scalings.values())) if len(self.known.scalings) == 1 else None
        return self.known.scalings.get(layer, only)

    def match(self, layer: str, store: Store, learns: bool, required: bool, column: str = "") -> LabelMatch:
        """Match the labels of a store with the labels of the training net by their class names.

        Parameters
        ----------
        layer : str
            The layer that reads the store.
        learns : bool
            Whether the layer belongs to the training net.
        required : bool
            Whether labels are needed. If False, labels that cannot be matched are dropped.
        column : str
            Name of the label to read, if records have several labels. If it is empty, several labels are dropped.

        Raises
        ------
        DataError
            Labels are required, and the training data lack one of the classes; or records have no label ``column``.
        """
        index, names = find_label(store, column)
        if index is None and has_several_labels(store):
            return LabelMatch(drops=True)
        if not learns and not names:
            return LabelMatch(index=index)
        try:
            expected = self.learn(layer, names, find_label_type(store, column)) if learns else self.find(layer)
            table = label_table(store.url, names, expected, "the checkpoint" if learns else "training")
        except DataError:
            if required:
                raise
            return LabelMatch(drops=True)
        return LabelMatch(table, url=store.url, index=index)


def _find(by_layer: Mapping[str, tuple[str, ...]], layer: str) -> tuple[str, ...]:
    """Return the class names of a layer, or else the class names of all other layers if these agree."""
    if layer in by_layer:
        return by_layer[layer]
    distinct = {names for names in by_layer.values() if names}
    return distinct.pop() if len(distinct) == 1 else ()
