"""Progress of a run on the terminal, and the run directory.

Both take events: plain dicts with a key ``event``.
"""

from __future__ import annotations

from singa_dask.observe.progress import (
    BarProgress,
    LinesProgress,
    Progress,
    join_if_fits,
    metrics_line,
    show_metrics,
    start_progress,
)
from singa_dask.observe.run_directory import (
    RunDirectory,
    first_command,
    new_job_id,
    newest_run,
    read_summary,
    short_url,
    to_json,
)

__all__ = [
    "BarProgress",
    "LinesProgress",
    "Progress",
    "RunDirectory",
    "first_command",
    "join_if_fits",
    "metrics_line",
    "new_job_id",
    "newest_run",
    "read_summary",
    "short_url",
    "show_metrics",
    "start_progress",
    "to_json",
]
