"""Files at URLs, local or remote. This is the only room that uses fsspec.

The functions of `files` are re-exported here, and are called as ``fs.open(...)``.
"""

# ruff: noqa: F403
from __future__ import annotations

from singa_dask.data.fs import files
from singa_dask.data.fs.files import *

__all__: list[str] = []
__all__ += files.__all__
