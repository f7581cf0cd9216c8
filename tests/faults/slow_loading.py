"""A Dask worker that is slow to load the package: this module is for its ``--preload``."""

from __future__ import annotations

import os
import sys
import time
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

__all__ = ["HOLD", "dask_setup"]

HOLD = "TESTS_HOLD_LOADING"
"""Names the file in the environment: as long as it is there, nothing is loaded."""


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        while name == "singa_dask.runtime.job.dask_worker.site" and Path(os.environ[HOLD]).exists():
            time.sleep(0.05)


def dask_setup(worker: object) -> None:
    """Be slow from now on."""
    sys.meta_path.insert(0, _Finder())
