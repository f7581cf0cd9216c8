"""The parts of a job that run in its processes: workers, servers, and their host.

A process
    `unit_host`: messages and memory of its units. `unit_task`: runs one unit. `router`: delivers messages.
    `job_of_thread`: the job of each thread, for logs. `unit_errors`: describes what ended a unit.
A worker
    `worker`: its steps. `trainer`: computes batches. `worker_params`: exchanges params. `run_state`: the step,
    and where the group stops or saves. `initial_state`: first values and positions. `evaluation`: tests during
    training.
A server
    `server`: updates slices of the params.
Checkpoints
    `checkpointing`: chooses when to save. `reporter`: what a worker adds. `pending`: collects the parts.
    `snapshot_schedule`: times of snapshots.
Measured
    `worker_metrics`: reports of a worker. `step_timer`: times of steps. `profiler`: times of layers and waits.
    `learning`: whether the net learns.
"""

__all__: list[str] = []
