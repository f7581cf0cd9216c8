"""A job on a Dask cluster, in files for four places.

State, without I/O
    `job_state`: decides what happens to a job. `placer`: where its units go. `replacement`: of a process that is lost.
    `events`: what is told to the state, and what it wants done.
On the scheduler
    `jobs`: all jobs. `views`: what it shows of them. `record`: what is known of a job. `line`: jobs that wait, and
    drivers of detached ones. `kept`: jobs that outlive the scheduler. `sites`: calls to Dask workers, and heartbeats.
On a Dask worker
    `site`: processes of any number of jobs. `hosting`: one of them. `job_log`: its log. `part_files`: data of the job.
    `clock`: the clock of the host.
On the client
    `checks`: what is checked before. `job_run`: a run to its end. `driver`: a job to its end, also on a Dask worker for
    `detached` jobs. `follower`: events of a job, and questions to the scheduler. `install`: `Jobs` on the scheduler.
    `cluster`: connections. `room`: waits until a job fits. `placing`: its Dask workers. `locality`: near its records.
    `seen_files`: whether they see its files. `record_scaling`: mean and deviation of records. `dask_tasks`: for these.
Everywhere
    `names`: of messages and plugins. `limits`: of time. `frames`: of connections.
"""

__all__: list[str] = []
