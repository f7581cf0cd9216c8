"""Inspection of data for ``init``: shape, range of values, classes, test set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from singa_dask.cli.findings import Ids, label_findings
from singa_dask.cli.init_columns import Options, Table, read_table
from singa_dask.cli.init_readings import (
    MAX_BLOCKS,
    find_sets,
    format_of,
    has_arrays,
    is_of_images,
    reading_of,
    unknown_label,
)
from singa_dask.cli.init_tables import Output, choose, show_reasons, split_rows
from singa_dask.data import Store, fs, open_store
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.vocabulary import decode_text, vocabulary_of
from singa_dask.data.stores.store import backends_holding
from singa_dask.errors import DataError

__all__ = ["Records", "Text", "survey"]

# least height and width of an image for a convolutional net
MIN_SIDE = 12
MAX_CHANNELS = 4
# numbers from 0 to 255 are as bytes if they reach this
MIN_BYTE_RANGE = 100
NOTHING_SAID = Options()


@dataclass(frozen=True)
class Text:
    """A text.

    Attributes
    ----------
    url : str
        As the user gave it.
    n_characters, n_distinct : int
        How many characters it has, and how many different ones.
    """

    url: str
    n_characters: int
    n_distinct: int


@dataclass(frozen=True)
class Records:
    """Records with labels.

    Attributes
    ----------
    url, test_url : str
        As the user gave it, or below it; ``test_url`` is empty if there is no test set.
    backend : str
        Format.
    shape : tuple of int
        Of one record, as ``store_conf.shape`` has it: images are (channels, height, width).
    is_image : bool
    n_records, n_test : int
    outputs : tuple of Output
        The label, or what is to be predicted.
    values : {"bytes", "small", "columns", "any"}
        Numbers from 0 to 255; from -1 to 1; columns of their own ranges each; anything else.
    mean, std : float
        Of all values that were looked at.
    reading : dict
        Other keys of ``store_conf`` that it takes to read the records.
    left_out : str
        Columns of a table that are not read, and why.
    trouble : tuple of str
        What is likely wrong with labels, and features with another whole number in each record.
    source : str
        Where the data are; ``url`` is elsewhere if a test set is split off.
    features : tuple of str
        Columns of a table that are features.
    split : str
        How the records of the test set were chosen, if it is split off.
    seed : int
        Of the split, and of the job.
    to_write : (Table, dict), optional
        A table, and which rows of it become which files, if so.
    """

    url: str
    test_url: str
    backend: str
    shape: tuple[int, ...]
    is_image: bool
    n_records: int
    n_test: int
    outputs: tuple[Output, ...]
    values: str
    mean: float
    std: float
    reading: Mapping[str, Any] = field(default_factory=dict)
    left_out: str = ""
    trouble: tuple[str, ...] = ()
    source: str = ""
    features: tuple[str, ...] = ()
    split: str = ""
    seed: int = 1
    to_write: tuple[Table, dict[str, np.ndarray[Any, Any]]] | None = None

    @property
    def has_classes(self) -> bool:
        """Whether there is a label; if not, numbers are to be predicted."""
        return self.outputs[0].is_label

    @property
    def class_names(self) -> tuple[str, ...]:
        """Of the only label; empty if classes have no names."""
        return self.outputs[0].names if len(self.outputs) == 1 else ()


def survey(
    url: str,
    test_url: str = "",
    backend: str = "",
    is_text: bool = False,
    given: Options = NOTHING_SAID,
    folder: str = "",
) -> Text | Records:
    """Look at data.

    Parameters
    ----------
    url : str
        A store, a directory with a training set in it, or a text.
    test_url : str
        Test set; looked for beside ``url`` if it is not given.
    backend : str
        Format; found from the file if it is not given.
    is_text : bool
        Take it as text in any case.
    given : Options
        What is said about the records.
    folder : str
        Where to write a test set, and the rest to train on.

    Raises
    ------
    UnsureError
        Two readings are likely.
    DataError
        It cannot be read, or has no labels to learn.
    """
    if not is_text:
        url, found, kind = find_sets(url.rstrip("/") or "/")
        backend = backend or kind or format_of(url)
        if backend:
            return _survey_records(url, test_url or found, backend, given, folder)
    place = fs.absolute(url)
    try:
        text = decode_text(place)
    except DataError as error:
        if is_text or "not UTF-8 text" not in str(error):
            raise
        raise DataError(f"{error} Nor is it of a format that is known.") from None
    return Text(url, len(text), len(vocabulary_of(text)))


# -- what is in it --------------------------------------------------------------------------------------


def _survey_table(url: str, test_url: str, backend: str, options: Options, folder: str) -> Records:
    """Look at a table with named columns, or lines of numbers with the label first."""
    place = fs.absolute(url)
    table = read_table(place, options)
    choice = choose(table, options)
    reading, outputs = choice.reading, choice.outputs
    train, test, said = split_rows(table, choice, options)
    if test_url or not table.is_whole:
        said = ""
    # lines of numbers, the label first, as SINGA has them
    is_plain = choice.is_plain and backend in backends_holding("text") and bool(said or not url.lower().endswith(".gz"))
    if is_plain:
        reading = {key: value for key, value in table.text.items() if key in ("separator", "header") and value != " "}
    if choice.unlabelled and not said:
        missing = f"{choice.unlabelled} records without {' and '.join(each.name for each in outputs)}"
        raise DataError(f"{url}: {missing}. Leave them out, or let init write a test set.")
    path, n_test, n_records = url, 0, table.n
    if said:
        path, test_url = (fs.join(folder, f"{part}{table.suffix}") for part in ("train", "test"))
        n_records, n_test, backend = len(train), len(test), table.suffix[1:]
    elif table.format == "whole" or url.lower().endswith(".gz"):
        backend = "table"
    if test_url and not said:
        n_test = _compare(place, test_url, backend, reading, url, is_plain)
    files = {f"train{table.suffix}": train, f"test{table.suffix}": test}
    return Records(
        path,
        test_url,
        backend,
        (choice.n_values,),
        False,
        n_records,
        n_test,
        outputs,
        "bytes" if choice.is_pixels else "columns",
        0.0,
        1.0,
        reading,
        show_reasons(choice.left_out),
        choice.notes,
        url,
        choice.features,
        said,
        options.seed,
        (table, files) if said else None,
    )


def _compare(place: str, test_url: str, backend: str, reading: Mapping[str, Any], url: str, is_plain: bool) -> int:
    """Return the number of records of a test set, which has to have the columns of the training set."""
    opened = backend if is_plain else "table"
    with open_store(place, opened, **reading) as store:
        facts = store.table_facts
    more = {"facts": facts.to_dict()} if facts is not None and opened == "table" else {}
    with open_store(fs.absolute(test_url), opened, **reading, **more) as store:
        _check_same(facts, store, test_url, url)
        return store.count


def _check_same(facts: TableFacts | None, store: Store, test_url: str, url: str) -> None:
    difference = store.table_facts.compare(facts) if facts and store.table_facts else ""
    if difference:
        raise DataError(f"{test_url}: {difference} in {url}. Expected the same columns in the same order.")


def _survey_records(url: str, test_url: str, backend: str, given: Options, folder: str) -> Records:
    place = fs.absolute(url)
    label = given.label[0] if given.label else ""
    if backend == "table" or backend in backends_holding("text") or (backend == "parquet" and _is_table(place)):
        return _survey_table(url, test_url, backend, given, folder)
    if extra := given.of_tables():
        raise DataError(f"{url}: --{extra} is for tables with named columns, in CSV, Parquet, JSON or Excel.")
    if len(given.label) > 1:
        raise DataError(f"{url}: --label {' and '.join(given.label)}. Expected one label; tables may have several.")
    backend, reading = reading_of(place, backend, label)
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in {**reading, **reading.get("user_conf", {})}.items()
        if name != "user_conf"
    }
    with open_store(place, backend, **options) as store:
        if "label" not in store.schema and backend == "npy":
            raise DataError(
                f"{url}: one array has no labels. Write both: numpy.savez('train.npz', images=x, labels=y)."
            )
        if not {"label", "target"} & store.schema.keys() and store.other_fields:
            raise unknown_label(url, store.other_fields)
        if not {"label", "target"} & store.schema.keys():
            raise DataError(f"{url}: the records have no labels. Expected some: a net of init learns classes.")
        values = store.schema.get("data") or store.schema["pixel"]
        shape, is_image = _shape(values.shape, reading)
        n_records, names, facts = store.count, store.class_names, store.table_facts
        ids = Ids({column.index: column.name for column in store.table_columns if column.field == "data"})
        labels, kind, mean, std = _scan(store, url, is_image, ids)
    if min(labels, default=0) < 0:
        raise DataError(f"{url}: label {min(labels)}. Expected labels from 0 on, a number for each class.")
    trouble = label_findings(labels, names, n_records) if labels else []
    if like_ids := ids.found():
        said = "another whole number in each record, like ids. Take them out of features if they are"
        trouble.append(f"{like_ids}: {said}")
    n_test = 0
    if test_url:
        with open_store(fs.absolute(test_url), backend, **options) as store:
            n_test = store.count
            _check_same(facts, store, test_url, url)
    n_classes = max(len(names), max(labels, default=0) + 1, 2)
    counts = tuple(labels[i] for i in range(n_classes))
    output = Output(label or "label", "given" if label else "that of the format", counts, names)
    return Records(
        url,
        test_url,
        backend,
        shape,
        is_image,
        n_records,
        n_test,
        (output,),
        kind,
        mean,
        std,
        reading,
        "",
        tuple(trouble),
        url,
        seed=given.seed,
    )


def _is_table(place: str) -> bool:
    """Return whether a Parquet file has a table, not records of arrays or pictures."""
    return not has_arrays(place) and not is_of_images(place)


def _shape(stored: tuple[int, ...], reading: dict[str, Any]) -> tuple[tuple[int, ...], bool]:
    """Return the shape of a record for a job, and whether it is an image; note in ``reading`` if axes move."""
    if len(stored) == 2 and min(stored) >= MIN_SIDE:
        return (1, *stored), True
    if len(stored) == 3 and stored[0] <= MAX_CHANNELS and min(stored[1:]) >= MIN_SIDE:
        return stored, True
    if len(stored) == 3 and stored[2] <= MAX_CHANNELS and min(stored[:2]) >= MIN_SIDE:
        reading["layout"] = "NHWC"
        return (stored[2], *stored[:2]), True
    return stored or (1,), False


def _scan(store: Store, url: str, is_image: bool, ids: Ids) -> tuple[Counter[int], str, float, float]:
    """Look at blocks; return the number of each label, kind of values, their mean and deviation."""
    labels = Counter[int]()
    if store.class_names and "pixel" in store.schema:
        for block in range(len(store.blocks)) if store.labels_apart else ():
            labels.update(store.read_labels(block).tolist())
        return labels, "bytes", 0.0, 1.0
    n = len(store.blocks)
    kinds, moments = set[str](), []
    for block in np.linspace(0, n - 1, min(n, MAX_BLOCKS)).astype(int).tolist():
        arrays = store.read_block(block)
        labels.update(arrays["label"].tolist())
        if "pixel" in arrays:
            continue
        values = arrays["data"]
        if not np.isfinite(values).all():
            raise DataError(f"{url}: nan or inf in block {block}. Expected numbers: leave out or fill in such values.")
        ids.add(values)
        kinds.add(_kind(values, is_image))
        moments.append((values.mean(dtype=np.float64), values.var(dtype=np.float64)))
    if not moments:
        return labels, "bytes", 0.0, 1.0
    mean, variance = np.mean(moments, axis=0)
    kind = kinds.pop() if len(kinds) == 1 else "any" if is_image else "columns"
    return labels, kind, float(mean), float(np.sqrt(variance)) or 1.0


def _kind(values: np.ndarray[Any, Any], is_image: bool) -> str:
    low, high = values.min(), values.max()
    if low >= 0 and MIN_BYTE_RANGE <= high <= 255 and (values == values.round()).all():
        return "bytes"
    if low >= -1 and high <= 1:
        return "small"
    return "any" if is_image else "columns"
