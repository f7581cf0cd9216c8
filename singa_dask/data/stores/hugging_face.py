"""Directories that Hugging Face's ``save_to_disk`` writes, and datasets whose README.md lists splits."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from singa_dask import fs
from singa_dask.conf.files.yaml_text import read_plain
from singa_dask.data.stores.shards import NUMBERS
from singa_dask.errors import ConfigError, DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.fs.patterns import is_pattern
from singa_dask.wording import listed

# maximum number of directory entries that are tried as folders
MAX_LOOKED_AT = 16
# files that save_to_disk writes, and the README.md of a dataset on the hub
SPLITS, STATE, README = "dataset_dict.json", "state.json", "README.md"
FRONT_MATTER = re.compile(r"---\r?\n(.*?\n)---\r?\n", re.DOTALL)


def saved_files(url: str, names: Collection[str], storage_options: fs.Options = None) -> list[str]:
    """Return the files that ``Dataset.save_to_disk`` wrote to a directory; empty for other directories.

    ``names`` are the names in the directory.

    Raises a `DataError` if the directory has several splits, each in its own directory, or does not list its files.
    """
    try:
        if SPLITS in names:
            splits = json.loads(fs.read_bytes(fs.join(url, SPLITS), storage_options=storage_options))["splits"]
            raise DataError(
                f"{url}: the data has the splits {listed(splits)}, which are not read as one dataset. Name one: "
                f"{url}/{splits[0]}."
            )
        if not {STATE, "dataset_info.json"} <= set(names):
            return []
        files = json.loads(fs.read_bytes(fs.join(url, STATE), storage_options=storage_options))["_data_files"]
        saved = [str(each["filename"]) for each in files]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{url}: {SPLITS if SPLITS in names else STATE} is damaged: {error!r}.") from None
    missing = [name for name in saved if name not in names]
    if missing or not saved:
        raise DataError(f"{url}: {STATE} names {listed(missing) or 'no file'}, which does not exist.")
    return [fs.join(url, name) for name in saved]


def name_sets(url: str, storage_options: fs.Options = None) -> str:
    """Return advice for a directory of Hugging Face's hub.

    Its sets of files are usually splits, such as train and test.
    """
    names = fs.ls(url, storage_options)
    if README in names and (splits := _splits_of(url, storage_options)):
        return f"Its {README} names sets of files. Name one: {listed(splits)}."
    folders = [name for name in names[:MAX_LOOKED_AT] if fs.is_dir(fs.join(url, name), storage_options)]
    names += [f"{folder}/{name}" for folder in folders for name in fs.ls(fs.join(url, folder), storage_options)]
    sets = {f"{match[1]}-*{match[4]}" for name in names if (match := NUMBERS.fullmatch(name))}
    patterns = sorted(name for name in sets if name.endswith(".parquet"))
    return (
        f"It has sets of files: name one, {' or '.join(fs.join(url, each) for each in patterns)}." if patterns else ""
    )


def _splits_of(url: str, storage_options: fs.Options) -> list[str]:
    """Return texts with files and name of each split in the front matter of README.md."""
    splits = []
    try:
        front = FRONT_MATTER.match(decode_text(fs.join(url, README), storage_options))
        for config in read_plain(front[1], README)["configs"] if front else ():
            for each in config["data_files"]:
                paths = [each["path"]] if isinstance(each["path"], str) else each["path"]
                split = f"{each['split']} of {config['config_name']}"
                # stores support patterns in file names, but not in directory names
                splits += [
                    f"{fs.join(url, path)} ({split})" for path in paths if not is_pattern(path.rpartition("/")[0])
                ]
    except (AttributeError, ConfigError, DataError, KeyError, TypeError):
        return []
    return splits
