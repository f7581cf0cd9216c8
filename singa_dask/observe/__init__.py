"""What is seen and kept of a run: the run directory, and progress on the terminal.

It is handed events, plain dicts with a key ``event``; it does not know who makes them.
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
