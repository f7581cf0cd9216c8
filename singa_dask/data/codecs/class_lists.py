"""Names of classes in the metadata of stores, in files of names and in options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask import fs
from singa_dask.errors import DataError
from singa_dask.fs.open_bytes import decode_text
from singa_dask.texts import split_lines

# a line with a number and a name, as in TensorFlow's labels.txt
NUMBERED = re.compile(r"(\d+):(.*)")


def hugging_face_names(metadata: Mapping[bytes, bytes] | None, column: str) -> tuple[str, ...]:
    """Return the class names of a column in the metadata of a Hugging Face file; empty if it has none."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return parse_names(features[column]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


def parse_names(names: Any) -> tuple[str, ...]:
    """Return class names, given as a list of distinct strings or its JSON; empty for anything else."""
    if isinstance(names, (bytes, str)):
        try:
            names = json.loads(names)
        except ValueError:
            return ()
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names) if len(set(names)) == len(names) else ()


def read_classes(url: str, classes: str | Sequence[str], storage_options: fs.Options = None) -> tuple[str, ...]:
    """Return class names in the order of their labels.

    Parameters
    ----------
    url : str
        URL of the store, for errors.
    classes : sequence of str, or str
        The names, or the URL of a text file with one name per line, written as ``cat`` or ``0:cat``.

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
                raise DataError(
                    f"{where}: the numbers of the {len(names)} names are not 0 to {len(names) - 1}, each once."
                )
            names = tuple(name for _, name in numbered)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: the name {twice!r} occurs twice. Expected each class once.")
    return names
