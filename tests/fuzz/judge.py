"""Judge: damages a subject, reads it, and says whether what came of it is right, refused, or a fault."""

from __future__ import annotations

import logging
import re
import traceback
import tracemalloc
from functools import cached_property
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from singa_dask.cli import main
from singa_dask.data.stores import Store, open_store
from singa_dask.data.types import Arrays
from singa_dask.errors import A_BUG, DataError
from tests.contracts.records import read_all
from tests.fuzz.mutations import mutate
from tests.fuzz.subjects import SUBJECTS, copy

__all__ = ["EXPECTED", "Judge"]

# what a file of these sizes may take besides twice its bytes: a chunk that is read ahead, tables, an error's text
SLACK_BYTES = 16 << 20
# one mutation of so many is a wrong suffix instead, one a damaged manifest
WRONG_SUFFIX, WRONG_MANIFEST = 16, 8
SUFFIXES = (
    ".arrow",
    ".bin",
    ".csv",
    ".idx",
    ".lmdb",
    ".npz",
    ".parquet",
    ".png",
    ".tar",
    ".tfrecord",
    ".txt",
    "",
)
# what an error of reading names besides the file
PLACE = re.compile(r"block \d|line \d|record|class-\d/|\.png|no such file")
RIGHT, REFUSED, WRONG = "right", "refused", "wrong, without checksums"
# outcomes that are no faults
EXPECTED = (RIGHT, REFUSED, WRONG, "ignored its manifest, and verify says so")


class Judge:
    """Damages one subject again and again, each time with another seed.

    Parameters
    ----------
    name : str
        Of SUBJECTS.
    folder : Path
        For the whole store, and for the damaged one.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.subject = SUBJECTS[name]
        self._whole, self._damaged = folder / "whole", folder / "damaged"
        self._whole.mkdir(parents=True)
        self.url = self.subject.write(self._whole)

    @cached_property
    def expected(self) -> Arrays:
        with self._open(self.url) as store:
            return read_all(store)

    def _open(self, url: str) -> Store:
        return open_store(url, self.subject.store if self.subject.named else None, **self.subject.options)

    def damage(self, seed: int) -> str:
        """Write a damaged copy; return its URL."""
        copy(self._whole, self._damaged)
        url = self.url.replace(str(self._whole), str(self._damaged))
        files = sorted(path for path in self._damaged.rglob("*") if path.is_file())
        manifests = [path for path in files if path.parent.name == "_singa"]
        data = [path for path in files if path not in manifests and path.match(self.subject.files)]
        random = np.random.default_rng([seed, 1])
        if manifests and random.integers(WRONG_MANIFEST) == 0:
            data = manifests
        path = data[int(random.integers(len(data)))]
        if random.integers(WRONG_SUFFIX) == 0 and str(path) == url:
            other = path.with_name(f"{path.stem}{SUFFIXES[int(random.integers(len(SUFFIXES)))]}")
            return str(path.rename(other))
        path.write_bytes(mutate(path.read_bytes(), seed))
        return url

    def outcome(self, seed: int) -> str:
        """Read a damaged copy by the store and by `data verify`; return one of EXPECTED, or what is wrong with that."""
        expected = self.expected
        url = self.damage(seed)
        warned = _Warned()
        logging.getLogger("singa_dask").addHandler(warned)
        tracemalloc.start()
        n_bytes, is_open = 0, False
        try:
            with self._open(url) as store:
                is_open = True
                n_bytes = store.count * sum(each.size_bytes for each in store.schema.values())
                read = RIGHT if _same(read_all(store), expected) else WRONG
        except DataError as error:
            read = REFUSED
            if str(self._damaged) not in str(error):
                return f"an error without the file: {error}"
            if is_open and not PLACE.search(str(error)):
                return f"an error without the block: {error}"
        except BaseException as error:
            return f"{type(error).__name__}: {''.join(traceback.format_exception(error))}"
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            logging.getLogger("singa_dask").removeHandler(warned)
        size = sum(each.stat().st_size for each in self._damaged.rglob("*") if each.is_file())
        if peak > 2 * max(size, n_bytes) + SLACK_BYTES:
            return f"{peak} bytes allocated for a file of {size} bytes and records of {n_bytes}"
        return self._verified(url, read, warned.count > 0)

    def _verified(self, url: str, read: str, warned: bool) -> str:
        """Return the outcome, given what came of reading."""
        backend = ["--backend", self.subject.store] if self.subject.named else []
        options = [f"--option={name}={value}" for name, value in self.subject.options.items()]
        result = CliRunner().invoke(main, ["data", "verify", url, *backend, *options])
        if result.exit_code not in (0, 1) or A_BUG in result.output or "Traceback" in result.output:
            return f"verify ends with {result.exit_code}: {result.output}"
        verified = result.exit_code == 0
        if read == REFUSED and verified:
            return "refused, but verify says that all can be read"
        if read == RIGHT and not verified and not self.subject.manifest:
            return f"right, but verify fails: {result.output}"
        if read == WRONG and self.subject.checked:
            if verified:
                return "wrong, and verify does not find it"
            return EXPECTED[-1] if warned else f"wrong without a warning; verify: {result.output}"
        return read


class _Warned(logging.Handler):
    """Counts warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def _same(found: Arrays, expected: Arrays) -> bool:
    return sorted(found) == sorted(expected) and all(
        array.dtype == found[name].dtype and np.array_equal(found[name], array) for name, array in expected.items()
    )
