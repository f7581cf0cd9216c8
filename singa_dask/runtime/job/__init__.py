"""A job on a Dask cluster, in files for four places.

State, without I/O
    `job_state`: decides what happens to a job. `events`: what it is told, and what it wants done. `placer`: where its
    units are, and when they move. `suspects`: those that failed lately. `restarts`: what a job restarts from, and when.
    `life`: what is known of one life. `replacement`: of processes that are lost.
On the scheduler
    `jobs`: carries out what `job_state` decides. `views`: what people ask. `record`: what is known of a job.
    `event_log`: its events. `stalls`: jobs that make no steps. `evidence`: processes that are silent, and live.
    `history`: jobs that have ended. `heartbeats`: Dask workers that are lost. `sites`: calls to Dask workers.
    `unit_tasks`: tasks that run units there. `line`: jobs that wait. `drivers`: where drivers of detached jobs run.
    `demand`: how many Dask workers are wanted. `kept`: detached jobs, for the next scheduler.
On a Dask worker
    `site`: processes of all jobs. `hosting`: one of them. `job_log`: its log. `clock`: of the host. `part_files`:
    files of datasets.
On the client
    `checks`: before anything starts. `epochs`: as steps. `job_run`: a run to its end. `driver`: a job to its end,
    also on a Dask worker for `detached` jobs. `follower`: what a client asks the scheduler. `group_metrics`: means
    over its workers. `job_end`: how a job has ended. `result`: what has become of it. `cluster`: connections.
    `client_security`: certificates of clients in Dask processes. `install`: `Jobs` on the scheduler. `room`: waits
    until a job fits. `locality`: chooses Dask workers near its records. `seen_files`: that see its files.
    `table_scans`: scans of large tables. `record_scaling`: mean and deviation of records. `dask_tasks`: functions as
    tasks.
Everywhere
    `names`: of messages and plug-ins. `limits`: of time. `frames`: stacks of threads.
"""

__all__: list[str] = []
