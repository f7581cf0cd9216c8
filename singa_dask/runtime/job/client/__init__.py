"""The part of a job that runs in the program that starts or follows the job.

Before the job starts
    `checks`: validates the job. `epochs`: counts the steps of its epochs. `room`: waits until the job fits on the
    cluster. `seen_files`: checks that Dask workers can read the job's files. `table_scans`: scans large tables.
    `record_scaling`: computes mean and deviation of records. `locality`: chooses Dask workers near the records.
While the job runs
    `job_run`: runs a job and writes its run directory. `driver`: submits a job and follows it. `detached`: runs drivers
    on Dask workers. `follower`: reads events, and calls the scheduler. `result`: the result of a job.
Dask
    `cluster`: connections. `client_security`: certificates of clients in Dask processes. `install`: `Jobs` on the
    scheduler. `dask_tasks`: functions as tasks.
"""

__all__: list[str] = []
