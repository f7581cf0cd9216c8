"""The files of run directories.

Write
    `run_directory`: all files. `journal`: text files that grow. `heartbeat`: shows that a run is running. `trace_file`:
    the trace of a profiled run.
Read
    `stored_run`: one run. `run_list`: all runs in a directory. `run_facts`: summarises a run. `job_values`: compares
    the jobs of runs.
"""

__all__: list[str] = []
