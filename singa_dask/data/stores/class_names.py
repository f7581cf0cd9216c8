"""Names of classes: what the labels of a store mean, and what they mean in all nets of a job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from singa_dask import fs
from singa_dask.data.codecs.category_names import NameNumbers
from singa_dask.data.codecs.learned import Learned
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.stores.label_match import LabelMatch, find_label, has_several_labels, label_table
from singa_dask.data.stores.store import Store
from singa_dask.errors import DataError, listed
from singa_dask.fs.open_bytes import decode_text
from singa_dask.texts import split_lines

# a line of a file that numbers its names, as TensorFlow's labels.txt does
NUMBERED = re.compile(r"(\d+):(.*)")


def hugging_face_names(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """Return the class names of a column of integers in the metadata of Hugging Face's files; empty if it has none."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return parse_names(features[column]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


def parse_names(found: Any) -> tuple[str, ...]:
    """Return class names from a list of distinct strings, or its JSON; empty for anything else."""
    if isinstance(found, (bytes, str)):
        try:
            found = json.loads(found)
        except ValueError:
            return ()
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found) if len(set(found)) == len(found) else ()


def write_options(
    target: type[Store], names: Sequence[str], table_facts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the options ``class_names`` and ``table_facts`` of a store's ``write``, as far as there are such.

    Left out is what is empty, and what the format does not support.
    """
    given = {"class_names": tuple(names), "table_facts": table_facts}
    return {name: value for name, value in given.items() if value and name in target.write_options}


def read_classes(url: str, classes: str | Sequence[str], storage_options: fs.Options = None) -> tuple[str, ...]:
    """Return class names in the order of their labels.

    Parameters
    ----------
    url : str
        URL of the store, for errors.
    classes : sequence of str, or str
        The names; or the URL of a text file with a name in each line, ``cat`` or with its label, ``0:cat``.

    Raises
    ------
    DataError
        The file cannot be read, its numbers are not 0, 1, ..., or a name occurs twice.
    """
    where, names = f"{url}: classes", tuple(classes)
    if isinstance(classes, str):
        where = classes
        names = tuple(line.strip() for line in split_lines(decode_text(classes, storage_options)) if line.strip())
        matches = [NUMBERED.fullmatch(name) for name in names]
        numbered = [(int(match[1]), match[2].strip()) for match in matches if match]
        if names and len(numbered) == len(names):
            numbered.sort()
            if [number for number, _ in numbered] != list(range(len(names))):
                raise DataError(f"{where}: {len(names)} names whose numbers are not 0 to {len(names) - 1}, each once.")
            names = tuple(name for _, name in numbered)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: the name {twice!r} occurs twice. Expected each class once.")
    return names


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
    scalings, inherited_scalings : dict of str to Scaling
        Mean and deviation of the training data of layers that standardise, known before training begins.
    """

    def __init__(self, learned: Learned | None = None) -> None:
        self.by_layer: dict[str, tuple[str, ...]] = {}
        self.inherited: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, Callable[[], tuple[str, ...]]] = {}
        self.tables: dict[str, TableFacts] = {}
        self.inherited_tables: dict[str, TableFacts] = {}
        self.scalings: dict[str, Scaling] = {}
        self.inherited_scalings: dict[str, Scaling] = {}
        self.update(learned or Learned.of())

    def learn(self, layer: str, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names for a layer of the training net, given those of its store."""
        if not self.by_layer.get(layer):
            inherited = _find(self.inherited, layer)
            index = NameNumbers(inherited)
            self.by_layer[layer] = inherited if names and all(index[name] >= 0 for name in names) else tuple(names)
        return self.by_layer[layer]

    def known_for(self, layer: str) -> tuple[str, ...]:
        """Return the names of a layer as far as they are known, or else those that all layers with names share."""
        return _find(self.by_layer, layer)

    def update(self, learned: Learned) -> None:
        """Take over what is in a checkpoint."""
        self.by_layer.update(learned.class_names)
        self.tables.update(learned.tables)
        self.scalings.update(learned.scalings)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return what is known, for the manifest of a checkpoint; see `Learned.of`."""
        known: dict[str, dict[str, Any]] = {
            "class_names": {layer: list(names) for layer, names in self.by_layer.items() if names},
            "tables": {layer: facts.to_dict() for layer, facts in self.tables.items()},
            "scalings": {layer: scaling.to_dict() for layer, scaling in self.scalings.items()},
        }
        return {key: found for key, found in known.items() if found}

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
            known = "; ".join(f"{name}: {listed(names)}" for name, names in self.by_layer.items())
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

        Layers that do not learn it know the means of columns that are standardised, too.
        ``learns`` says whether the layer belongs to the training net.
        """
        if learns:
            return self.tables.get(layer) or self.inherited_tables.get(layer)
        self._read()
        found = list(self.tables.values())
        same = found[0] if found and all(each == found[0] for each in found) else None
        facts, scaling = self.tables.get(layer, same), self.scaling_of(layer)
        return facts.with_means(scaling.mean) if facts and scaling else facts

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
        if facts is not None and known is not None and (difference := facts.compare(known)):
            raise DataError(
                f"{store.url}: {difference} in training. Convert training and test data together, with --split, or "
                "train and test with the tables themselves, with features and label in store_conf."
            )

    def scaling_of(self, layer: str) -> Scaling | None:
        """Return the scaling of a layer of any net: of that name, or the only one; None if there is none."""
        only = next(iter(self.scalings.values())) if len(self.scalings) == 1 else None
        return self.scalings.get(layer, only)

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
