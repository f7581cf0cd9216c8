"""The directory of the cache, also for measured costs, cuDNN's engines and tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# other directories in the cache folder, whose files are not cache entries
COSTS, ENGINES, TABLES = OTHERS = ("costs", "cudnn", "tables")


def cache_folder(settings: Mapping[str, Any] | None = None) -> Path:
    """Return the directory of the cache.

    It is ``dir`` of the settings, SINGA_DASK_CACHE, or ~/.cache/singa-dask.
    """
    default = os.environ.get("SINGA_DASK_CACHE") or os.path.join("~", ".cache", "singa-dask")
    folder = os.path.expanduser((settings or {}).get("dir") or default)
    # without a home directory, return a path that cannot be created, instead of a directory called ~
    return Path(os.devnull, folder) if folder.startswith("~") else Path(os.path.abspath(folder))
