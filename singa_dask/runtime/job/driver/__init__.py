"""The part of a job that submits it, and follows it to its end, wherever it runs.

Before the job starts
    `locality`: chooses Dask workers near the records. `table_scans`: scans large tables. `epochs`: counts the steps of
    its epochs. `record_scaling`: computes mean and deviation of records.
While the job runs
    `job_run`: runs a job and writes its run directory. `driver`: submits a job and follows it. `follower`: reads its
    events. `result`: the result of a job. `driver_host`: runs the drivers of detached jobs on Dask workers.
"""

__all__: list[str] = []
