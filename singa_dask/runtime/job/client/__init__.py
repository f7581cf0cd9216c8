"""The part of a job that runs in the user's program, or as the driver of a detached job.

Before the job starts
    `checks`: validates the job. `epochs`: counts the steps of its epochs. `seen_files`: checks that Dask workers can
    read the job's files. `table_scans`: scans large tables. `record_scaling`: computes mean and deviation of records.
    `locality`: chooses Dask workers near the records.
While the job runs
    `job_run`: runs a job and writes its run directory. `driver`: submits a job and follows it. `follower`: reads its
    events. `result`: the result of a job. `detached`: hands a run over to the cluster. `driver_host`: runs the drivers
    of detached jobs on Dask workers.
Other jobs
    `remote_jobs`: lists, stops and ends jobs.
Dask
    `cluster`: connections. `job_cluster`: prepares a cluster for a job. `calls`: calls of `Jobs`. `dask_tasks`:
    functions as tasks.
"""

__all__: list[str] = []
