"""Decisions before a job starts: the nets, and each unit's process, Dask worker and device.

`layout`: the units of each process. `worker_choice`: the Dask worker of each process. `devices`: the device of each
worker. `machine`: cores, threads and memory of this machine. `thread_limits`: limits on the threads of libraries.
`nets`: the nets of a worker. `job_stores`: the stores that a job reads. `job_plan`: params and their slices.
`whole_pass`: passes over all records. `absolute_paths`: makes the paths of a job absolute.
"""

__all__: list[str] = []
