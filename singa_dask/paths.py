"""Paths and URLs as people write them."""

from __future__ import annotations

import os
import re

from singa_dask.errors import ConfigError

# keys of a job that hold paths or URLs; these names are used for no other keys
PATH_KEYS = {
    "checkpoint_path", "dir", "mean_file", "meanfile", "modules", "path", "std_file", "tokenizer", "vocab_path",
    "workspace",
}  # fmt: skip

VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


def expand(path: str) -> str:
    """Expand ``~`` at the start, ``$VAR`` and ``${VAR}`` in a path or URL, as a shell does.

    If a file with exactly this name exists, the name is returned unchanged.

    Raises
    ------
    ConfigError
        A variable is not set.
    """

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise ConfigError(f"{path}: the environment variable {name!r} is not set.")
        return os.environ[name]

    path = os.path.expanduser(path)
    return path if os.path.lexists(path) else VARIABLE.sub(value, path)
