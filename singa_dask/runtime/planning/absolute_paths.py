"""Make the paths of a job absolute, for processes with another working directory."""

from __future__ import annotations

from typing import Any

from singa_dask import fs
from singa_dask.conf import JobConf
from singa_dask.paths import PATH_KEYS

# keys of a job whose values are paths of records or checkpoints
_PATHS = PATH_KEYS - {"dir", "modules", "workspace"}


def absolute_paths(job: JobConf) -> JobConf:
    """Return the job with absolute paths. Relative paths start at the current directory."""
    return JobConf.model_validate(_made_absolute(job.model_dump(mode="json"), ""))


def _made_absolute(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: each if name == "categories" else _made_absolute(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_made_absolute(each, key) for each in value]
    return fs.absolute(value) if key in _PATHS and isinstance(value, str) else value
