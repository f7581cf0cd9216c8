"""A job on a Dask cluster, with a folder for each place where its code runs.

Each folder imports only the folders above it in this list:

- `state` decides what happens next, without I/O.
- `dask_worker` runs on Dask workers.
- `checks` runs before a job starts.
- `driver` runs a job to its end, in the user's program or on a Dask worker.
- `scheduler` runs on Dask's scheduler.
- `client` runs in the program that starts or follows a job.

Modules that all folders use: `names` (of messages and plug-ins), `limits` (timeouts), `job_end` (how a job ended),
`patience` (waiting for a cluster), `frames` (stacks of threads), `client_security` (TLS), `calls` (of a client to the
scheduler), and `dask_tasks` (runs functions as tasks).
"""

__all__: list[str] = []
