"""What a Dask worker does for jobs.

`site`: processes of all jobs. `hosting`: one of them. `job_log`: its log. `clock`: of the host. `part_files`: files of
datasets.
"""

__all__: list[str] = []
