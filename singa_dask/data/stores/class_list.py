"""Class names that a user gives with a store: a list, or the URL of a text file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from singa_dask.data import fs
from singa_dask.errors import DataError

__all__ = ["read_classes"]

# a line of a file that numbers its names, as TensorFlow's labels.txt does
NUMBERED = re.compile(r"(\d+):(.*)")


def read_classes(url: str, classes: str | Sequence[str], storage_options: fs.Options = None) -> tuple[str, ...]:
    """Return class names in the order of their labels.

    Parameters
    ----------
    url : str
        URL of the store, for errors.
    classes : sequence of str, or str
        The names; or the URL of a text file with a name in each line, ``cat`` or with its label, ``0:cat``.

    Raises
    ------
    DataError
        The file cannot be read, its numbers are not 0, 1, ..., or a name occurs twice.
    """
    where, names = f"{url}: classes", tuple(classes)
    if isinstance(classes, str):
        where = classes
        text = fs.read_bytes(classes, storage_options=storage_options).decode(errors="replace")
        names = tuple(line.strip() for line in text.splitlines() if line.strip())
        matches = [NUMBERED.fullmatch(name) for name in names]
        numbered = [(int(match[1]), match[2].strip()) for match in matches if match]
        if names and len(numbered) == len(names):
            numbered.sort()
            if [number for number, _ in numbered] != list(range(len(names))):
                raise DataError(f"{where}: {len(names)} names whose numbers are not 0 to {len(names) - 1}, each once.")
            names = tuple(name for _, name in numbered)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: the name {twice!r} occurs twice. Expected each class once.")
    return names
