"""Options and findings of ``init``, and the test set: how it is split off, or counted."""

from __future__ import annotations

import copy
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask import fs
from singa_dask.data.codecs.table_facts import TableFacts
from singa_dask.data.codecs.tokens import TextMeasure
from singa_dask.data.stores import Store, open_store
from singa_dask.data.stores.arrow.arrow import ArrowStore
from singa_dask.data.stores.class_names import write_options
from singa_dask.data.stores.label_match import label_table
from singa_dask.data.stores.split import SplitConf
from singa_dask.errors import DataError
from singa_dask.redaction import readable
from singa_dask.shown import by_shape

Rows = npt.NDArray[np.int64]


class Note(NamedTuple):
    """A finding about ``n`` values of a column, and how they are handled."""

    column: str
    found: str
    n: int
    done: str


# numbers from 0 to 255 are treated as bytes if their maximum is at least this
MIN_BYTE_RANGE = 100
# a class is rare if another has more than RARE times its records; of more than MAX_WEIGHED classes, none is called rare
RARE, MAX_WEIGHED = 10, 20


class UnsureError(DataError):
    """Data can be read in several ways.

    ``question`` asks the user for the way. ``choices`` are the possible answers, each with the fields of `InitOptions`
    that it changes.
    """

    def __init__(self, place: str, question: str, choices: Sequence[tuple[str, dict[str, Any]]], advice: str) -> None:
        self.question, self.choices = question, tuple(choices)
        super().__init__(f"{place}: {question} {advice}")


@dataclass(frozen=True)
class InitOptions:
    """The options of ``init``. ``run`` runs tasks on Dask workers, if there are any."""

    label: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    text: str = ""
    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    separator: str = ""
    encoding: str = ""
    missing: str = ""
    classes: tuple[str, ...] = ()
    header: bool | None = None
    quotes: bool | None = None
    na_values: tuple[str, ...] = ()
    thousands: str = ""
    decimal: str = ""
    lags: int = 0
    test_split: float = 0.2
    split_by: str = ""
    copy: bool = False
    seed: int = 1
    net: str | None = None
    test: str = ""
    backend: str = ""
    run: Callable[..., Any] | None = field(default=None, compare=False)

    def of_tables(self) -> str:
        """Return the name of a given option that applies only to tables; empty if there is none."""
        names = ["target", "features", "text", "drop", "category", "encoding", "missing", "classes", "lags", "split_by"]
        names += ["na_values", "thousands", "decimal"]
        given = [name for name in names if getattr(self, name)]
        given += [name for name in ("header", "quotes") if getattr(self, name) is not None]
        return given[0] if given else ""


@dataclass(frozen=True)
class TextSurvey:
    """Properties of a text: its URL, its number of characters, and how many of these are distinct."""

    source: str
    n_characters: int
    n_distinct: int


@dataclass(frozen=True)
class OutputSurvey:
    """Properties of a label or target: its column, why it was chosen, and the records of each class.

    The records of each class are counted if there are classes. ``names`` are the values of the classes, in order; empty
    if they are 0, 1, ...
    """

    name: str
    why: str
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @property
    def is_label(self) -> bool:
        """Whether it is a label, which has classes."""
        return bool(self.counts)

    @property
    def has_rare(self) -> bool:
        """Whether some of a few classes are rare."""
        is_rare = 0 < RARE * min(self.counts, default=0) < max(self.counts, default=0)
        return is_rare and len(self.counts) <= MAX_WEIGHED

    @property
    def roc_auc(self) -> str:
        """The metric that shows how well records are ranked; empty for several classes, none of them rare."""
        return "roc_auc" if len(self.counts) == 2 else "roc_auc_ovr" if self.has_rare else ""


@dataclass(frozen=True)
class Baseline:
    """Quality of simple models of the training records.

    Attributes
    ----------
    score : float
        Accuracy of a logistic regression, or root mean squared error of a ridge regression, on the test records. If
        there are none, it is cross-validated.
    linear, best : float
        Share of the variance of labels or targets that a ridge regression explains, 0 to 1: the linear one, and the
        better one of the linear one and one with a kernel. Each training record is predicted from all others.
    roc_auc : float or None
        Area under the ROC curve of the logistic regression, a mean over classes, if the label has a rare class.
    constants : tuple of float
        For each label or target the accuracy, or root mean squared error, of the best constant answer on the test
        records. Empty if there are none.
    """

    score: float
    linear: float
    best: float
    roc_auc: float | None = None
    constants: tuple[float, ...] = ()

    @property
    def curved(self) -> float:
        """Share of the variance left unexplained by the linear model that the better model explains."""
        return (self.best - self.linear) / (1 - self.linear)


@dataclass(frozen=True)
class RecordSurvey:
    """Labelled records, and how to read and split them.

    Attributes
    ----------
    source : str
        URL of the data.
    url, test_url : str
        URLs of the training set and the test set. They differ from ``source`` if the records are copied. ``test_url``
        is empty if there is no test set.
    shape : tuple of int
        Shape of a record for ``store_conf``; images are (channels, height, width).
    outputs : tuple of OutputSurvey
        Labels or targets.
    n_records, n_test : int
        Number of training records and of test records. They are estimates if a table was not read completely.
    n_seen : int
        Number of records of a table that were read.
    values : {"bytes", "small", "columns", "any"}
        Range of the values: bytes from 0 to 255, small numbers from -1 to 1, columns that each have their own range, or
        any other numbers.
    mean, std : float
        Mean and standard deviation of all values that were read.
    reading : dict
        Further keys of ``store_conf`` that are needed to read the records.
    trouble : sequence of str
        Messages about likely problems.
    measure : TextMeasure, optional
        Lengths and characters of the texts of a table, if the texts are its features.
    left_out : str
        Message that lists the columns of a table that are not used, with the reasons.
    notes : sequence of Note
        How values of a table are read, and which ones are filled or left out.
    key : str
        Column that identifies records, such as an id or a time.
    split : str
        How the records of a split test set were chosen.
    rule : mapping
        Rule of `SplitConf` if training and test set are parts of one store.
    form : str
        Format of the data; ``backend`` is the format of the training set.
    group_bytes : int
        Size of the largest row group; 0 without row groups.
    write : callable, optional
        Writes the files of the split into a folder.
    is_counted : bool
        Whether Dask workers have counted all records of a large table.
    naive : sequence of str
        How good naive forecasts of a time series are.
    unlabelled_url : str
        Records that are named like a test set, but have no labels.
    largest : float
        Share of the largest class among the test records that a split chose; 0 if it is not known.
    """

    source: str
    url: str
    backend: str
    shape: tuple[int, ...]
    outputs: tuple[OutputSurvey, ...]
    n_records: int
    seed: int
    values: str
    test_url: str = ""
    n_test: int = 0
    is_image: bool = False
    mean: float = 0.0
    std: float = 1.0
    reading: Mapping[str, Any] = field(default_factory=dict)
    trouble: Sequence[str] = ()
    features: tuple[str, ...] = ()
    measure: TextMeasure | None = None
    left_out: str = ""
    notes: Sequence[Note] = ()
    baseline: Baseline | None = None
    naive: Sequence[str] = ()
    n_seen: int = 0
    key: str = ""
    split: str = ""
    rule: Mapping[str, Any] = field(default_factory=dict)
    unlabelled_url: str = ""
    form: str = ""
    group_bytes: int = 0
    write: Callable[[str], None] | None = None
    is_counted: bool = False
    largest: float = 0.0

    @property
    def has_classes(self) -> bool:
        """Whether classes are predicted, not numbers."""
        return self.outputs[0].is_label

    @property
    def outputs_named(self) -> str:
        """Names of the labels or targets."""
        return " and ".join(each.name for each in self.outputs)

    @property
    def n(self) -> int:
        """Number of all records, including a split test set."""
        return self.n_records + (self.n_test if self.split else 0)

    @property
    def is_about(self) -> bool:
        """Whether the numbers of records are estimates."""
        return 0 < self.n_seen < self.n and not self.is_counted

    def describe(self) -> str:
        """Describe the shape of a record, and its labels or targets."""
        shape, counts = by_shape(self.shape), [str(len(each.counts)) for each in self.outputs]
        if not self.has_classes:
            return f"of {shape} values and {self.outputs_named} to predict"
        if len(counts) == 1:
            return f"of {shape} values in {counts[0]} classes"
        return f"of {shape} values with {len(counts)} labels of {' and '.join(counts)} classes"


# fewer test records are too few to judge a net
MIN_TESTED = 10
# data with fewer records is not split, and arrays of more bytes are not copied
MIN_SPLIT = 10
MAX_COPIED = 1 << 28
NOT_COPIED = f"--copy: more than {MAX_COPIED >> 20} MiB are not copied. Leave it out."
# maximum number of test sets to try, and of records in all test sets together
MAX_DRAWS, MAX_DRAWN = 1000, 1_000_000
Split = tuple[Rows, Rows, str]
"""Rows to train and to test on, and how they were chosen."""


def _largest(labels: npt.NDArray[Any]) -> float:
    """Return the share of the largest class."""
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def _tested(counts: Rows, share: float) -> Rows:
    """Return the number of records of each class to test on; at least one of each class is for training."""
    wanted: Rows = np.minimum(np.rint(share * counts), counts - 1).astype(np.int64)
    return wanted


def stratify(labels: npt.NDArray[Any], options: InitOptions) -> Split:
    """Split records at random, stratified by class."""
    random, codes = np.random.default_rng(options.seed), np.unique(labels, return_inverse=True)[1]
    n = np.bincount(codes)
    chosen = [random.permutation(rows) for rows in np.split(np.argsort(codes, kind="stable"), np.cumsum(n)[:-1])]
    counts = _tested(n, options.test_split)
    test = np.sort(np.concatenate([each[:k] for each, k in zip(chosen, counts, strict=True)]))
    how = f"{len(test)} at random, as many of each class, seed {options.seed}"
    return np.delete(np.arange(len(codes)), test), test, how


def directory_of(url: str) -> str:
    """Return the directory that has the data at a URL or pattern."""
    return posixpath.dirname(re.split(r"[*?[]", url.rstrip("/"))[0])


def copies_folder(url: str, folder: str) -> str:
    """Return the folder for copies: beside the job file, or beside remote data."""
    if fs.local_path(url) is not None:
        return folder
    return fs.join(directory_of(url), posixpath.basename(folder))


def with_split(
    records: RecordSurvey, folder: str, suffix: str, split: Split, write: Callable[[str, Rows], None]
) -> RecordSurvey:
    """Return the survey with training and test records in two files.

    ``write`` is called with the URL of a file and the indices of its records.
    """
    (train, test, how), names = split, (f"train{suffix}", f"test{suffix}")

    def write_both(place: str) -> None:
        fs.makedirs(place)
        for name, rows in zip(names, (train, test), strict=True):
            write(fs.join(place, name), rows)

    url, test_url = (fs.join(copies_folder(records.source, folder), name) for name in names)
    records = replace(records, url=url, test_url=test_url, n_records=len(train), n_test=len(test))
    return replace(records, split=how, write=write_both)


def split_by_rule(
    survey: RecordSurvey,
    options: InitOptions,
    kept: Rows | None,
    labels: npt.NDArray[Any] | None = None,
    test_from: int = 0,
    order: str = "",
) -> RecordSurvey:
    """Return the survey with a test set that is part of the store: a random share, or the last records.

    Parameters
    ----------
    kept : ndarray, optional
        Indices in the store of the records that are used, if all records were read.
    labels : array, optional
        Class of each record in ``kept``. If given, the split is stratified.
    test_from : int
        Index of the first test record, if the last records are the test set.
    order : str
        Text that describes the order of the records, if ``test_from`` is given.
    """
    n = survey.n_records if kept is None else len(kept)
    rule = {"test_from": test_from} if test_from else {"test_share": options.test_split, "seed": abs(options.seed)}
    if n < MIN_SPLIT:
        return survey
    if kept is None:
        n_test = n - test_from if test_from else round(options.test_split * n)
    else:
        if labels is not None and not test_from:
            codes = np.unique(labels, return_inverse=True)[1]
            wanted = _tested(np.bincount(codes), options.test_split)
            if not wanted.any():
                return survey
            rule["seed"] = _even_seed(codes, kept, wanted, options)
        is_test = np.isin(kept, SplitConf.model_validate({"part": "test", **rule}).rows(0, kept[-1] + 1))
        n_test = int(is_test.sum())
        if labels is not None and n_test:
            survey = replace(survey, largest=_largest(labels[is_test]))
    if not 0 < n_test < n:
        return survey
    of_each = ", about the same share of each class" * (labels is not None and survey.has_classes)
    how = f"{n_test} at random{of_each}, seed {rule.get('seed')}"
    how = f"{'about ' * (kept is None)}{f'the last {n_test}{order}' if test_from else how}"
    return replace(survey, test_url=survey.url, split=how, rule=rule, n_records=n - n_test, n_test=n_test)


def _even_seed(codes: Rows, kept: Rows, wanted: Rows, options: InitOptions) -> int:
    """Return the seed whose split is closest to the wanted number of test records of each class.

    Several seeds are tried, because the rule of the split ignores classes: in a small table, an arbitrary seed may give
    too many records of one class to the test set.
    """
    n, seed = np.bincount(codes), abs(options.seed)
    classes = np.full(kept[-1] + 1, len(n))
    classes[kept] = codes
    more = np.random.default_rng(seed).integers(1 << 31, size=min(MAX_DRAWS, MAX_DRAWN // len(classes)))

    def unevenness(seed: int) -> tuple[int, int]:
        rows = SplitConf(part="test", test_share=options.test_split, seed=seed).rows(0, len(classes))
        tested = np.bincount(classes[rows], minlength=len(n) + 1)[:-1]
        return int((tested == n).sum()), int(np.abs(tested - wanted).sum())

    seeds: list[int] = [seed, *more.tolist()]
    return min(seeds, key=unevenness)


def split_store(survey: RecordSurvey, closed: Store, options: InitOptions, folder: str) -> RecordSurvey:
    """Return the survey with a test set, unless there are too few records."""
    with copy.copy(closed) as store:
        if survey.values == "columns" and len(survey.shape) == 1:
            # widen the values, as `standardise` does
            store.widen()
        # image files are not counted, because they are not copied
        files, n_bytes = store.record_files(0, store.count), store.count * store.record_bytes
        is_small = bool(files) or n_bytes <= MAX_COPIED
        if not options.copy:
            labels = [store.read_labels(i) for i in range(len(store.blocks))] if is_small else []
            return split_by_rule(survey, options, np.arange(store.count), np.concatenate(labels) if labels else None)
        if not is_small:
            raise DataError(f"{survey.url}: {NOT_COPIED}")
        if store.count < MIN_SPLIT:
            return survey
        blocks = [{"label": store.read_labels(i)} if files else store.read_block(i) for i in range(len(store.blocks))]
        records = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    train, test, how = stratify(records["label"], options)
    if not len(test):
        return survey
    classes, reading = closed.class_names, dict(survey.reading)
    if files:
        if odd := next((file for file in files if readable(file) != file), ""):
            raise DataError(
                f"{odd}: the name is not UTF-8, so no list of pictures can name it. Rename it, e.g. with convmv, or "
                "leave --copy out."
            )
        names = [classes[i] if classes else i for i in records["label"]]
        lines = [f"{fs.absolute(file)}\t{name}\n" for file, name in zip(files, names, strict=True)]
        odd = next((file for file, line in zip(files, lines, strict=True) if re.search(r"[\r\n].|\t.*\t", line)), "")
        if odd:
            said = "a list of pictures has a name in each line, and a tab behind it. Rename it, or leave --copy out."
            raise DataError(f"{odd!r}: {said}")
        backend, suffix, how = "image-list", ".txt", f"{how}, a list of pictures"
        reading |= {"user_conf": {"classes": list(classes)}} if classes else {}
    else:
        backend, suffix, how = "arrow", ".arrow", f"{how}, a copy, {n_bytes / 1e6:.1f} MB in all"
        # the copy has images of the final size, and its only option is the name of the label
        label = reading.get("user_conf", {}).get("label")
        reading = {"layout": reading.get("layout"), "user_conf": label and {"label": label}}

    def write(url: str, rows: Rows) -> None:
        if files:
            fs.write_atomic(url, "".join(lines[row] for row in rows))
            return
        facts = closed.table_facts.to_dict() if closed.table_facts else None
        keys = write_options(ArrowStore, classes, facts)
        ArrowStore.write(url, {name: values[rows] for name, values in records.items()}, **keys)

    largest = _largest(records["label"][test])
    survey = replace(
        survey, backend=backend, largest=largest, reading={key: value for key, value in reading.items() if value}
    )
    return with_split(survey, folder, suffix, (train, test, how), write)


def count_test(
    test_url: str, backend: str, reading: Mapping[str, Any], facts: TableFacts | None, url: str, output: OutputSurvey
) -> tuple[int, int, float]:
    """Return how many records of a test set are used and left out, and the share of the largest class.

    The share is 0 if the labels are not read.

    Raises
    ------
    DataError
        The test set has other columns, categories or classes than the training set, or a value that cannot be read.
    """
    with open_store(test_url, backend, **reading) as store:
        label_table(test_url, store.class_names, output.names, "training")
        found = list[npt.NDArray[Any]]()
        for block in range(len(store.blocks) if facts or store.reads_labels_alone else 0):
            labels = store.read_block(block).get("label") if facts else store.read_labels(block)
            if labels is None or labels.ndim > 1:
                continue
            found.append(labels)
            n, high = len(output.counts), labels.max(initial=0)
            if output.is_label and not output.names and high >= n:
                raise DataError(f"{test_url}: label {high}. Expected labels from 0 to {n - 1}, as in {url}.")
        difference = store.table_facts.compare(facts) if facts and store.table_facts else ""
        if difference:
            raise DataError(f"{test_url}: {difference} in {url}. Expected the same columns in the same order.")
        is_known = output.is_label and any(len(each) for each in found)
        largest = _largest(np.concatenate(found)) if is_known else 0.0
        return store.count, store.left_out, largest
