"""Decisions about jobs, without I/O.

`job_state`: decides what a job does next. `events`: events that a job reacts to, and its actions. `placer`: decides
where units run, and when they move. `suspects`: Dask workers that have failed recently. `restarts`: decides what a job
restarts from, and when. `incarnation`: the units between two restarts of the whole job. `replacement`: replaces lost
processes.
"""

__all__: list[str] = []
