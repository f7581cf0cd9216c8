"""A job on a Dask cluster, with a folder for each place where its code runs.

`state`: decisions, without I/O. `scheduler`: Dask's scheduler. `dask_worker`: a Dask worker. `client`: the client. For
all of them: `names` of messages and plug-ins, `limits` (timeouts), `frames` (stacks of threads), and `job_end`.
"""

__all__: list[str] = []
