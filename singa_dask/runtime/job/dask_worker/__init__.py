"""The part of a job that runs on Dask workers.

`site`: the processes of all jobs. `hosting`: one process. `job_log`: its log. `clock`: the clock of the host.
`host_names`: names of the host.
`part_files`: files of datasets.
"""

__all__: list[str] = []
