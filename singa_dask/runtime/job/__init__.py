"""A job on a Dask cluster, with a folder for each place where its code runs.

Each folder imports only the folders above it in this list:

- `state` decides what happens next, without I/O.
- `dask_worker` runs on Dask workers.
- `scheduler` runs on Dask's scheduler.
- `client` runs in the program that starts or follows a job.

Modules that all folders use: `names` of messages and plug-ins, `limits` (timeouts), `job_end` (how a job ended),
`patience` (waiting for a cluster), `frames` (stacks of threads) and `client_security` (TLS).
"""

__all__: list[str] = []
