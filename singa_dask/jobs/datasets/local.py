"""Part files of datasets in a temporary directory of this machine."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dask.base import compute, is_dask_collection
from distributed import Future

from singa_dask.data.fs.locks import create_locked, delete_unlocked
from singa_dask.errors import DataError
from singa_dask.jobs.datasets.dataset import Dataset

__all__ = ["local_parts"]

PREFIX, LOCK = "singa-dask-data-", "lock"


@contextlib.contextmanager
def local_parts(datasets: Mapping[str, Dataset]) -> Iterator[dict[str, str]]:
    """Write datasets to files of this machine, a partition at a time; yield the pattern of the files of each by name.

    The files are deleted at the end.

    Raises
    ------
    DataError
        A partition cannot be computed, be records, or be written; names dataset and partition.
    """
    if not datasets:
        yield {}
        return
    _sweep()
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        root = Path(name)
        # as long as it is locked, it is not deleted by other processes
        with create_locked(root / LOCK):
            yield {name: _write(dataset, root) for name, dataset in datasets.items()}


def _sweep() -> None:
    """Delete the directories of processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        # other users' cannot be opened
        with contextlib.suppress(OSError):
            delete_unlocked([path], lambda lock: shutil.rmtree(lock.parent, ignore_errors=True))


def _write(dataset: Dataset, root: Path) -> str:
    folder = root / (re.sub(r"[^\w-]", "-", dataset.name))
    while folder.exists():
        folder = folder.with_name(f"{folder.name}-")
    n = 0
    try:
        folder.mkdir()
        for index, part in enumerate(dataset.parts):
            value = _computed(dataset, index, part)
            n += dataset.write_part(value, str(folder / dataset.file_name(index)), index).n
            # before the next one is there
            del value
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"dataset {dataset.name!r}: cannot be written to {root}: {error.strerror or error}. To write to another "
            "disk, set TMPDIR."
        ) from error
    if not n:
        raise DataError(f"dataset {dataset.name!r}: no records.")
    return str(folder / dataset.pattern)


def _computed(dataset: Dataset, index: int, part: Any) -> Any:
    try:
        if isinstance(part, Future):
            return part.result()
        return compute(part)[0] if is_dask_collection(part) else part  # type: ignore[no-untyped-call]
    except Exception as error:
        raise DataError(
            f"dataset {dataset.name!r}, partition {index}: cannot be computed: {type(error).__name__}: {error}"
        ) from error
