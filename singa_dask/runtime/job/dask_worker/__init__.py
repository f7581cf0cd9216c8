"""The part of a job that runs on Dask workers.

`site`: the plug-in that hosts processes of all jobs. `hosting`: hosts one process of a job. `units_task`: the Dask task
that runs units. `snapshot_exchange`: parts of snapshots, here and on other Dask workers. `job_log`: sends log messages
to the client. `clock`: compares clocks. `host_names`: names of the host. `part_files`: files of datasets.
"""

__all__: list[str] = []
