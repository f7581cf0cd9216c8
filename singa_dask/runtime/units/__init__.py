"""The units of a job (its workers and servers), and the host that runs them in a process.

A process
    `unit_host`: sets up messages and memory for the units of a process. `run_unit`: runs one unit. `router`: delivers
    messages. `barrier_coordinator`: lets units wait for each other. `job_of_thread`: the job of each thread, for logs.
    `unit_errors`: describes the error that ended a unit.
A worker
    `worker`: runs the steps. `channel`: its messages. `lockstep`: keeps a group's workers together. `trainer`: computes
    batches. `worker_params`: exchanges params with servers. `host_mirror`: copies of a GPU's params in host memory.
    `mailbox`: arrays from other workers of the group. `run_state`: the current step, and the steps at which the group
    stops or saves. `initial_state`: initial values and positions. `evaluation`: tests during training.
A server
    `server`: updates slices of the params.
Checkpoints
    `checkpointing`: decides when to save. `checkpoint_reporter`: sends a worker's part of a checkpoint.
    `pending_checkpoints`: collects the parts. `saving`: saves parts in the background. `snapshot_schedule`: chooses the
    times of snapshots.
Measurements
    `worker_metrics`: reports the metrics of a worker. `step_timer`: measures steps. `profiler`: measures layers and
    waits. `learning_observer`: observes whether the net learns.
"""

__all__: list[str] = []
