"""Dataset: data of Python objects in partitions, each of which is written as one file of records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


def place_of(dataset: str, index: int, n_parts: int) -> str:
    """Return where errors are: the dataset, and the partition if there are several."""
    return f"dataset {dataset!r}" + (f", partition {index}" if n_parts > 1 else "")


class PartFacts(NamedTuple):
    """What was written of a partition.

    Attributes
    ----------
    n : int
        Number of records. Of an empty partition no file is written.
    bytes : int
        Size of the file.
    """

    n: int
    bytes: int


class WritePart(Protocol):
    """Writes one partition as a file; picklable, without the data."""

    def __call__(self, value: Any, path: str, index: int) -> PartFacts:
        """Write a partition.

        Parameters
        ----------
        value
            What the part is, computed.
        path : str
            Local path of the file, in an existing directory. If there is an error, the caller deletes the file.
        index : int
            Of the partition.

        Raises
        ------
        DataError
            The values cannot be records; names dataset, column and partition.
        """


@dataclass(frozen=True)
class Dataset:
    """Data of Python objects for the input layers with ``path: dask://NAME``.

    Attributes
    ----------
    name : str
    parts : tuple
        One for each partition: a `dask.delayed.Delayed` to be computed, or the value itself.
    write_part : callable
        See `WritePart`.
    suffix : str
        Of the files: ``.arrow`` for arrays, ``.parquet`` for frames.
    defaults : mapping
        Keys of ``store_conf`` that hold where a layer says nothing else, e.g. the column ``label``.
    shape : tuple of int or None
        Of a record, where it is known before the partitions are there.
    columns : tuple of str
        Of a frame, without those of y.
    drop : callable or None
        Returns the dataset of a frame without some of its columns.
    meta : frame or None
        A frame of pandas or pyarrow without records, of its columns and their types.
    has_weights : bool
        Whether there is a weight for each record beside X and y.
    """

    name: str
    parts: tuple[Any, ...]
    write_part: WritePart
    suffix: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()
    drop: Callable[[Collection[str]], Dataset] | None = None
    meta: Any = None
    has_weights: bool = False

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns of y and of weights that are given beside a frame."""
        names = (*self.defaults.get("label", ()), *self.defaults.get("target", ()))
        return (*names, self.defaults["weight"]) if "weight" in self.defaults else names

    def file_name(self, index: int) -> str:
        """Return the name of the file of a partition; names sort in the order of partitions."""
        width = max(5, len(str(len(self.parts) - 1)))
        return f"part-{index:0{width}d}{self.suffix}"

    @property
    def pattern(self) -> str:
        """Pattern of the names of all files."""
        return f"part-*{self.suffix}"
