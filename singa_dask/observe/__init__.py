"""Record and show runs.

`files`: run directories. `terminal`: progress on a terminal. `pictures`: pictures and pages. `programs`: events for
other programs. `learning`: judges whether a run has learned. `event_texts`: formats events as text. `json_values`:
writes JSON that any program can read.

Events are plain dicts with a key ``event``. Names that most commands use are imported on first use, so that importing
this package loads neither file systems nor numpy.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.observe.event_texts import event_text, log_text, show_metrics, stack_text
    from singa_dask.observe.files.run_directory import is_run, new_job_id, read_summary, short_url
    from singa_dask.observe.json_values import to_json
    from singa_dask.observe.terminal.progress import join_if_fits, start_progress

__all__ = [
    "event_text",
    "is_run",
    "join_if_fits",
    "log_text",
    "new_job_id",
    "read_summary",
    "short_url",
    "show_metrics",
    "stack_text",
    "start_progress",
    "to_json",
]

__getattr__ = lazy_names(
    __name__,
    {
        "json_values": ["to_json"],
        "event_texts": ["event_text", "log_text", "show_metrics", "stack_text"],
        "terminal.progress": ["join_if_fits", "start_progress"],
        "files.run_directory": ["is_run", "new_job_id", "read_summary", "short_url"],
    },
)
