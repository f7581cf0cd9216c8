"""Paths of a job, made absolute for the processes that run it."""

from __future__ import annotations

from typing import Any

from singa_dask.conf import JobConf
from singa_dask.data import fs

__all__ = ["absolute_paths"]

_PATHS = {"path", "vocab_path", "mean_file", "std_file", "meanfile", "checkpoint_path"}


def absolute_paths(job: JobConf) -> JobConf:
    """Return the job with its relative paths, which start where it was started, made absolute for other processes."""
    return JobConf.model_validate(_made_absolute(job.model_dump(mode="json"), ""))


def _made_absolute(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _made_absolute(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_made_absolute(each, key) for each in value]
    return fs.absolute(value) if key in _PATHS and isinstance(value, str) else value
