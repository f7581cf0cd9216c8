"""Names of shards: files of one set, numbered as ``-00001-of-00004``."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence

from singa_dask import fs
from singa_dask.data.stores.lakes import refuse_lake
from singa_dask.data.stores.store import MANIFEST_DIR, SPLIT
from singa_dask.errors import DataError, NoFileError
from singa_dask.fs.patterns import matches
from singa_dask.wording import listed

NUMBERS = re.compile(r"(.*)-(\d{5})-of-(\d{5})(.*)")


def shard_url(url: str, index: int, count: int) -> str:
    """Return the URL of one shard: ``train-00002-of-00016.arrow`` of ``train.arrow``."""
    folder, slash, name = url.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    stem, dot, suffix = (stem, dot, suffix) if stem else (name, "", "")
    return f"{folder}{slash}{stem}-{index:05d}-of-{count:05d}{dot}{suffix}"


def shard_urls(url: str, storage_options: fs.Options = None) -> list[str]:
    """Return the URLs that match a pattern, sorted.

    Raises a `DataError` if no file matches, or files of a set are missing: if ``-00001-of-00004`` exists, the other
    three must exist too, unless the pattern excludes their names.
    """
    # exclude manifests
    urls = [each for each in matches(url, storage_options) if f"/{MANIFEST_DIR}/" not in f"/{each}/"]
    if not urls:
        raise NoFileError(f"{url}: no such file or directory, nothing matches.")
    pattern, folders = url.rpartition("/")[2], dict[str, list[str]]()
    for each in urls:
        folder, name = posixpath.split(each)
        folders.setdefault(folder, []).append(name)
    for folder, names in folders.items():
        refuse_lake(folder or ".", fs.ls(folder or ".", storage_options), storage_options)
        missing = [name for name in _sets_of(names) if fnmatch.fnmatch(name, pattern) and name not in names]
        if missing:
            verb = "are" if missing[1:] else "is"
            raise DataError(f"{url}: {listed(missing, 3)} {verb} missing, expected the whole set.")
    check_splits(url, urls)
    return urls


def check_splits(url: str, files: Sequence[str], is_dir: bool = False) -> None:
    """Raise a `DataError` if file names mention several splits, such as training and test.

    The error is also raised if a directory contains several sets of shards such as ``-00000-of-00004``.
    """
    names = [file.rpartition("/")[2] for file in files]
    splits = {match[1][:3]: match[1] for name in names if (match := SPLIT.search(name.lower()))}
    if is_dir and len(splits) < 2:
        splits = {match[1]: match[1] for name in names if (match := NUMBERS.fullmatch(name))}
    if len(splits) > 1:
        named = " and ".join(sorted(splits.values()))
        raise DataError(
            f"{url}: files of {named} would be read as one dataset. Name the files of one split by a pattern such as "
            f"'*{sorted(splits.values())[-1]}*', or rename the files if they belong together."
        )


def _sets_of(names: list[str]) -> list[str]:
    """Return the names of all files in each set that contains one of ``names``."""
    matches = filter(None, map(NUMBERS.fullmatch, names))
    sets = {(stem, int(count), suffix) for stem, _, count, suffix in (match.groups() for match in matches)}
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for stem, count, suffix in sorted(sets) for i in range(count)]
