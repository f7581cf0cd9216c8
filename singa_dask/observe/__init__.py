"""Progress of a run on the terminal, and the run directory.

The run directory
    `run_directory`: writes it. `journal`: its text files. `stored_run`, `run_list`: read it. `run_facts`: a
    summary of a run. `job_values`: values of its job. `json_values`: JSON for any program. `trace_file`: the
    trace of a profiled run.
On the terminal
    `progress`: lines. `bars`: bars. `event_texts`: events as text.
Pictures and pages
    `curves`: curves of runs. `figure`: drawn as pictures. `text_figure`: drawn as text. `timeline`: threads in a
    step. `html`: pages. `comparison`, `comparison_page`: runs under several topologies.
Other programs
    `observers`: passes events on. `tensorboard_files`: to TensorBoard. `mlflow_run`: to MLflow.
Advice
    `learning`: judges whether a run has learnt.

Events are plain dicts with a key ``event``. What most commands call is imported on first use, so that importing this
package loads neither files nor numpy.
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
