"""Run directories written without a cluster, by the class that writes those of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from singa_dask.observe.files.run_directory import RunDirectory

__all__ = ["BEGAN", "metrics", "training", "write_run"]

BEGAN = 1_700_000_000.0
JOB = """\
name: {name}
train_steps: 100
cluster: {{nworker_groups: 1, nworkers_per_group: 1, nserver_groups: 1, nservers_per_group: 1}}
neuralnet:
  layer:
  - {{name: data, type: RecordInput}}
  - {{name: fc, type: InnerProduct, innerproduct_conf: {{num_output: {n_outputs}}}}}
  - {{name: data, type: RecordInput}}
"""


def metrics(step: int, phase: str = "train", group: int = 0, **values: Any) -> dict[str, Any]:
    """Return an event with metrics; a step takes 10 ms."""
    return {"event": "metrics", "step": step, "phase": phase, "group": group, "time": BEGAN + 0.01 * step, **values}


def training(n: int = 10, every: int = 10) -> list[dict[str, Any]]:
    """Return events of a run with a test after every second line of progress: losses fall, accuracies rise."""
    events = []
    for i in range(n):
        step, rates = every * i, {"lr": 0.1, "samples_per_s": 1000.0, "wait_data_ms": 1.0, "wait_params_ms": 2.0}
        events.append(metrics(step, loss=1 / (i + 1), accuracy=1 - 1 / (i + 2), epoch=i / 4, **rates))
        if i % 2:
            events.append(metrics(step, "test", loss=1.1 / (i + 1), accuracy=0.9 - 0.9 / (i + 2)))
    return events


def write_run(
    folder: Path,
    events: Iterable[Mapping[str, Any]],
    summary: Mapping[str, Any] | None = None,
    name: str = "digits",
    n_outputs: int = 10,
) -> str:
    """Write a run directory, without a summary if there is none, and return its URL."""
    command = {"time": BEGAN - 1, "arguments": ["singa-dask", "run", "job.yaml"], "host": "here", "directory": "/jobs",
               "version": "0.1"}  # fmt: skip
    text = JOB.format(name=name, n_outputs=n_outputs)
    with RunDirectory(str(folder), text, text, command=command) as directory:
        directory.on_event({"event": "started", "time": BEGAN})
        for event in events:
            directory.on_event(event)
        if summary is not None:
            directory.finish({"state": "done", "steps": 100, "seconds": 2.0, **summary})
    return str(folder)
