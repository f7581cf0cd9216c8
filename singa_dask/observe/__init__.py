"""Record and show runs: the run directory, progress on the terminal, pictures, and advice.

The run directory
    `run_directory`: writes it. `journal`: appends to its text files. `stored_run`, `run_list`: read it. `run_facts`:
    summarises a run. `job_values`: compares jobs. `json_values`: writes JSON that any program can read. `trace_file`:
    writes the trace of a profiled run.
On the terminal
    `progress`: shows lines. `bars`: shows bars. `event_texts`: formats events as text.
Pictures and pages
    `curves`: computes the curves of runs. `figure`: draws them as pictures. `text_figure`: draws them as text.
    `timeline`: draws the threads of a step. `html`: writes pages. `comparison`, `comparison_page`: compare runs under
    several topologies.
Other programs
    `observers`: passes events to other programs. `tensorboard_files`: to TensorBoard. `mlflow_run`: to MLflow.
Advice
    `learning`: judges whether a run has learned.

Events are plain dicts with a key ``event``. Names that most commands use are imported on first use, so that importing
this package loads neither file systems nor numpy.
"""

from typing import TYPE_CHECKING

from singa_dask.lazy import lazy_names

if TYPE_CHECKING:
    from singa_dask.observe.event_texts import event_text, log_text, show_metrics, stack_text
    from singa_dask.observe.json_values import to_json
    from singa_dask.observe.progress import join_if_fits, start_progress
    from singa_dask.observe.run_directory import is_run, new_job_id, read_summary, short_url

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
        "progress": ["join_if_fits", "start_progress"],
        "run_directory": ["is_run", "new_job_id", "read_summary", "short_url"],
    },
)
