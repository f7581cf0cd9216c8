"""A job on a Dask cluster, a folder for each place.

`state`: decisions, without I/O. `scheduler`: on Dask's scheduler. `dask_worker`: on a Dask worker. `client`: on the
client.

For all of them
    `names`: of messages and plug-ins. `limits`: of time. `frames`: stacks of threads. `job_end`: how a job has ended.
"""

__all__: list[str] = []
