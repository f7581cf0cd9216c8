"""Progress of a run on the terminal, and the run directory.

Both take events: plain dicts with a key ``event``.

Names are imported on first use, so that importing this package loads neither files nor numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.observe.journal import to_json
    from singa_dask.observe.progress import (
        Progress,
        join_if_fits,
        show_metrics,
        start_progress,
    )
    from singa_dask.observe.run_directory import (
        RunDirectory,
        first_command,
        log_line,
        new_job_id,
        newest_run,
        read_summary,
        short_url,
    )

__all__ = [
    "Progress",
    "RunDirectory",
    "first_command",
    "join_if_fits",
    "log_line",
    "new_job_id",
    "newest_run",
    "read_summary",
    "short_url",
    "show_metrics",
    "start_progress",
    "to_json",
]

__getattr__ = lazy_names(
    __name__,
    {
        "journal": ["to_json"],
        "progress": [
            "Progress",
            "join_if_fits",
            "show_metrics",
            "start_progress",
        ],
        "run_directory": [
            "RunDirectory",
            "first_command",
            "log_line",
            "new_job_id",
            "newest_run",
            "read_summary",
            "short_url",
        ],
    },
)
