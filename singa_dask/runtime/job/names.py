"""Names under which the parts of the run time find each other on a Dask cluster."""

from __future__ import annotations

__all__ = ["EVENTS", "JOBS", "SITE", "Op", "topic_of"]

JOBS = "singa-dask-jobs"
"""The scheduler plug-in."""
SITE = "singa-dask"
"""The worker plug-in, and its entry in the metrics of a Dask worker."""
EVENTS = "singa-dask-event"
"""Stream from Dask workers to the scheduler."""


class Op:
    """Operations of the scheduler plug-in and of the worker plug-in."""

    SUBMIT = "singa_dask_submit"
    SIGNAL = "singa_dask_signal"
    FIND = "singa_dask_find"
    LEAVING = "singa_dask_leaving"
    LEFT = "singa_dask_left"
    HOST = "singa_dask_host"
    END = "singa_dask_end"
    CUT = "singa_dask_cut"
    JOIN = "singa_dask_join"
    STOP = "singa_dask_stop"
    SNAPSHOT = "singa_dask_snapshot"
    KEEP = "singa_dask_keep"
    PART = "singa_dask_part"


def topic_of(job_id: str) -> str:
    """Return the event topic of a job, which begins the keys of its tasks too."""
    return f"singa-dask-{job_id}"
