"""What the client of a job does.

Before it starts
    `checks`: what is wrong with it. `epochs`: as steps. `room`: waits until it fits. `seen_files`: Dask workers that
    see its files. `table_scans`: scans of large tables. `record_scaling`: mean and deviation of records. `locality`:
    chooses Dask workers near its records.
While it runs
    `job_run`: a run to its end. `driver`: a job to its end, also on a Dask worker for `detached` jobs. `follower`: what
    a client asks the scheduler. `result`: what has become of it.
Dask
    `cluster`: connections. `client_security`: certificates of clients in Dask processes. `install`: `Jobs` on the
    scheduler. `dask_tasks`: functions as tasks.
"""

__all__: list[str] = []
