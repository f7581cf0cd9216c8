"""What ``init`` is told of data, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from singa_dask.errors import DataError

Rows = npt.NDArray[np.int64]

# numbers from 0 to 255 are as bytes if they reach this
MIN_BYTE_RANGE = 100


class UnsureError(DataError):
    """Data can be read in several ways.

    Attributes
    ----------
    question : str
    choices : tuple of (str, dict)
        What each answer says, and the fields of `Options` that it changes.
    """

    def __init__(self, place: str, question: str, choices: Sequence[tuple[str, dict[str, Any]]], advice: str) -> None:
        self.question, self.choices = question, tuple(choices)
        super().__init__(f"{place}: {question} {advice}")


@dataclass(frozen=True)
class Options:
    """The options of ``init``: most say how a table is read."""

    label: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    separator: str = ""
    encoding: str = ""
    missing: str = ""
    classes: tuple[str, ...] = ()
    header: bool | None = None
    lags: int = 0
    test_split: float = 0.2
    seed: int = 1
    net: str | None = None
    test: str = ""
    backend: str = ""

    def of_tables(self) -> str:
        """Return an option that only tables take, if one is given."""
        names = ("target", "features", "drop", "encoding", "missing", "classes", "lags")
        return next((name for name in names if getattr(self, name)), "header" if self.header is not None else "")


@dataclass(frozen=True)
class Text:
    """A text: where it is, how many characters it has, and how many different ones."""

    source: str
    n_characters: int
    n_distinct: int


@dataclass(frozen=True)
class Output:
    """A label or a target: its column, why it is one, and its classes with their numbers of records, if it has some.

    ``names`` are the values that are classes, in order; none if they are 0, 1, ...
    """

    name: str
    why: str
    counts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0

    @property
    def is_label(self) -> bool:
        """Whether it has classes."""
        return bool(self.counts)


@dataclass(frozen=True)
class Records:
    """Records with labels.

    Attributes
    ----------
    source : str
        Where the data are.
    url, test_url : str
        Training set, elsewhere than the data if a test set is split off; test set, empty if there is none.
    backend : str
        Format.
    shape : tuple of int
        Of one record, as ``store_conf.shape`` has it: images are (channels, height, width).
    outputs : tuple of Output
        The labels, or what is to be predicted.
    n_records, n_test : int
    seed : int
        Of the split, and of the job.
    values : {"bytes", "small", "columns", "any"}
        Numbers from 0 to 255; from -1 to 1; columns of their own ranges each; anything else.
    is_image : bool
    mean, std : float
        Of all values that were looked at.
    reading : dict
        Other keys of ``store_conf`` that it takes to read the records.
    trouble : sequence of str
        What is likely wrong with labels, and features with another whole number in each record.
    features : tuple of str
        Columns of a table that are features.
    left_out : str
        Columns of a table that are not read, and why.
    split : str
        How the records of the test set were chosen, if it is split off.
    form : str
        Format of the data, which that of the split need not be.
    write : callable, optional
        Writes the files of the split into a folder.
    """

    source: str
    url: str
    backend: str
    shape: tuple[int, ...]
    outputs: tuple[Output, ...]
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
    left_out: str = ""
    split: str = ""
    form: str = ""
    write: Callable[[str], None] | None = None

    @property
    def has_classes(self) -> bool:
        """Whether there is a label; if not, numbers are to be predicted."""
        return self.outputs[0].is_label

    @property
    def outputs_named(self) -> str:
        """Names of the labels, or of what is to be predicted."""
        return " and ".join(each.name for each in self.outputs)

    def describe(self) -> str:
        """Return the shape of a record, and what a net learns of it."""
        shape, counts = " x ".join(map(str, self.shape)), [str(len(each.counts)) for each in self.outputs]
        if not self.has_classes:
            return f"of {shape} values and {self.outputs_named} to predict"
        if len(counts) == 1:
            return f"of {shape} values in {counts[0]} classes"
        return f"of {shape} values with {len(counts)} labels of {' and '.join(counts)} classes"


def listed(texts: Sequence[str], n: int) -> str:
    """Return the first of some texts, and how many more there are."""
    more = f" and {len(texts) - n} more" if len(texts) > n else ""
    return ", ".join(texts[:n]) + more
