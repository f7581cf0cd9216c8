"""Results of a survey: records, their labels or targets, notes on values, and scores of simple models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from singa_dask.data.codecs.tokens import TextMeasure
from singa_dask.shown import by_shape

Rows = npt.NDArray[np.int64]

# numbers from 0 to 255 are treated as bytes if their maximum is at least this
MIN_BYTE_RANGE = 100
# a class is rare if another class has more than RARE times as many records; with more than MAX_WEIGHED classes, no
# class is called rare
RARE, MAX_WEIGHED = 10, 20


class Note(NamedTuple):
    """A finding about ``n`` values of a column, and how they are handled."""

    column: str
    found: str
    n: int
    done: str


@dataclass(frozen=True)
class TextSurvey:
    """Properties of a text: its URL, its number of characters, and how many of these are distinct."""

    source: str
    n_characters: int
    n_distinct: int


@dataclass(frozen=True)
class OutputSurvey:
    """Properties of a label or target: its column, why it was chosen, and records of each class.

    A target has no classes, so ``counts`` is empty. ``names`` are the values of the classes, in order; empty if these
    values are 0, 1, ...
    """

    name: str
    why: str
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @property
    def is_label(self) -> bool:
        """Whether this is a label, which has classes, and not a target."""
        return bool(self.counts)

    @property
    def has_rare(self) -> bool:
        """Whether some of a few classes are rare."""
        is_rare = 0 < RARE * min(self.counts, default=0) < max(self.counts, default=0)
        return is_rare and len(self.counts) <= MAX_WEIGHED

    @property
    def roc_auc(self) -> str:
        """Name of the ROC AUC metric, for two classes, or more classes if one is rare; empty otherwise."""
        return "roc_auc" if len(self.counts) == 2 else "roc_auc_ovr" if self.has_rare else ""


@dataclass(frozen=True)
class Baseline:
    """Quality of simple models of the training records.

    Attributes
    ----------
    score : float
        Accuracy of a logistic regression, or root mean squared error of a ridge regression, on the test records.
        Without test records, the score is cross-validated.
    linear, best : float
        Share of the variance of labels or targets that a ridge regression explains, 0 to 1. ``linear`` is the share of
        the linear regression; ``best`` is the larger share of the linear and the kernel regression. Each training
        record is predicted from all others.
    roc_auc : float or None
        Area under the ROC curve of the logistic regression, averaged over classes, if the label has a rare class.
    constants : tuple of float
        For each label or target: accuracy of always predicting the most frequent class, or root mean squared error of
        always predicting the mean, on the test records. Empty if there are no test records.
    """

    score: float
    linear: float
    best: float
    roc_auc: float | None = None
    constants: tuple[float, ...] = ()

    @property
    def curved(self) -> float:
        """Share of the variance unexplained by the linear model that the best model explains."""
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
        Range of the values. ``bytes``: 0 to 255. ``small``: -1 to 1. ``columns``: each column has its own range.
        ``any``: other numbers.
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
        How values of a table are read, and which values are filled or left out.
    key : str
        Column that identifies records, such as an id or a time.
    split : str
        How the test records were chosen, if the test set was split off.
    rule : mapping
        Keys of `SplitConf`, if training and test set are parts of one store.
    form : str
        Format of the data; ``backend`` is the format of the training set.
    group_bytes : int
        Size of the largest row group; 0 without row groups.
    write : callable, optional
        Function that writes the files of the training and test set into a folder.
    is_counted : bool
        Whether Dask workers have counted all records of a large table.
    naive : sequence of str
        Texts that describe the scores of naive forecasts of a time series.
    unlabelled_url : str
        URL of records whose file name suggests a test set, but which have no labels.
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
