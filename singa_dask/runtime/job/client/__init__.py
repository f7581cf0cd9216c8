"""The client's side of a job.

Before it starts
    `checks`: validates the job. `epochs`: counts their steps. `room`: waits until the job fits on the cluster.
    `seen_files`: checks that Dask workers see its files. `table_scans`: scans large tables. `record_scaling`: computes
    mean and deviation of records. `locality`: chooses Dask workers near the records.
While it runs
    `job_run`: records a run. `driver`: submits a job and follows it. `detached`: drivers on Dask workers. `follower`:
    events, and questions to the scheduler. `result`: the result of a job.
Dask
    `cluster`: connections. `client_security`: certificates of clients in Dask processes. `install`: `Jobs` on the
    scheduler. `dask_tasks`: functions as tasks.
"""

__all__: list[str] = []
