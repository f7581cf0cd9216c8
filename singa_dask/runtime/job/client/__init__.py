"""The part of a job that only the user's program runs.

`cluster`: connects to a cluster, or starts one. `job_cluster`: prepares a cluster for a job. `detached`: hands a run
over to the cluster. `remote_jobs`: lists, stops and ends jobs.
"""

__all__: list[str] = []
