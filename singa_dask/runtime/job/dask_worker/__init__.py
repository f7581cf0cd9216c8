"""The part of a job that runs on Dask workers.

`site`: the processes of all jobs. `hosting`: one process. `units_task`: the Dask task of its units. `job_log`: its log.
`clock`: the clock of the host. `host_names`: names of the host. `part_files`: files of datasets.
"""

__all__: list[str] = []
