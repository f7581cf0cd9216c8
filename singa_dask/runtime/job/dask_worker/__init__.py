"""The part of a job that runs on Dask workers.

`site`: the plug-in that hosts processes of all jobs. `hosting`: hosts one process. `units_task`: the Dask task that
runs its units. `job_log`: sends its log to the client. `clock`: compares clocks. `host_names`: names of the host.
`part_files`: files of datasets.
"""

__all__: list[str] = []
